"""Read a ResourceQuota: which of its keys speak of resources that a migration takes from pods.

The API server counts pods, and a converted pod carries none of these resources any more, so without
us every such key would be met by any number of cards (ruling 30).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hami_dra.migration import Code, Json, Notice, Policy
from hami_dra.migration.quantity import NANO, QuantityError, parse

_PREFIXES: Final = ("limits.", "requests.")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a key of a quota counts.

    Attributes:
        resource: the resource, under which amounts are kept.
        unit: its unit for people, singular where there is one.
        factor: of what is kept in one unit of what is written.
    """

    resource: str
    unit: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Limit:
    """One key of a quota.

    Attributes:
        key: as it is written, such as `limits.nvidia.com/gpumem`.
        meaning: what it counts.
        hard: the most, in the unit that is kept.
    """

    key: str
    meaning: Meaning
    hard: int


@dataclass(frozen=True, slots=True)
class Quota:
    """What one ResourceQuota says of resources that are converted.

    Attributes:
        uid: of the object.
        namespace: where it is.
        name: of the object.
        limits: the keys that are held.
        not_held: the keys that cannot be, with the reason.
        scopes: the scopes that it names, which claims do not have.
    """

    uid: str
    namespace: str
    name: str
    limits: tuple[Limit, ...]
    not_held: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Say what of the quota does not hold as it is written."""
        path = f"resourcequotas/{self.name}"
        said = [f"{key} is not held: claims have no such amount" for key in self.not_held]
        if self.scopes and self.limits:
            scopes = ", ".join(self.scopes)
            said.append(f"claims have no scope ({scopes}), so all of them count")
        return tuple(Notice(Code.QUOTA_NOT_HELD, path, message) for message in said)


@lru_cache(maxsize=16)
def meanings(policy: Policy) -> Mapping[str, Meaning | None]:
    """Return what each key of a quota means; None for one that no claim can be measured by."""
    found: dict[str, Meaning | None] = {}
    for family in policy.families:
        if not family.device_class:  # its pods keep their resources, and the API server counts them
            continue
        names = family.resources
        counts = "slices" if family.count_means == "slices" else "cards"
        known = {
            names.count: Meaning(names.count, counts),
            names.memory: Meaning(names.memory, "MiB", family.memory_factor or 1),
            names.percentage: None,
            names.cores: Meaning(names.cores, "percent"),
            names.priority: None,
        }
        known.pop("", None)
        for prefix in _PREFIXES:
            found |= {f"{prefix}{name}": meaning for name, meaning in known.items()}
    return found


def read_quota(item: Json, policy: Policy) -> Quota | None:
    """Read a ResourceQuota as the API server has stored it; None if it is none of our business."""
    spec, metadata = item.get("spec") or {}, item["metadata"]
    known = meanings(policy)
    ours = {key: value for key, value in (spec.get("hard") or {}).items() if key in known}
    if not ours:
        return None
    limits = [_limit(key, value, known[key]) for key, value in ours.items()]
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    scopes = (*(spec.get("scopes") or ()), *(each.get("scopeName", "") for each in selector))
    return Quota(
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        limits=tuple(limit for limit in limits if limit is not None),
        not_held=tuple(key for key in ours if known[key] is None),
        scopes=tuple(dict.fromkeys(scopes)),
    )


def _limit(key: str, value: object, meaning: Meaning | None) -> Limit | None:
    if meaning is None:
        return None
    try:
        hard = max(0, parse(value).nanos) * meaning.factor // NANO
    except QuantityError:
        hard = 0  # the API server stores only quantities; whatever this is, it allows nothing
    return Limit(key, meaning, hard)
