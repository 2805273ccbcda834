"""Read: what one container asked for in the old vocabulary, after all of HAMi's rules.

Reproduces the legacy webhook and parser together (rulings 1-9), and the API server's checks of
extended resources in between, because once we have stripped a key nobody else can check it.
Reads only; never writes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from hami_dra.migration.json import Json
from hami_dra.migration.notice import Code, Notice, RejectedPod
from hami_dra.migration.policy import INT32_MAX, Family, ResourceNames
from hami_dra.migration.quantity import Quantity, QuantityError, parse

MEMORY_IMPLAUSIBLE_MIB: Final = 1_000_000
"""From here on an amount cannot be MiB of one card (the largest had under 300,000 in 2026), so the
author wrote bytes. Legacy let such pods wait for ever."""

_WHOLE: Final = 100  # percent
_BYTES_IN_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Request:
    """What one container means, per card.

    Attributes:
        path: the container's resources in the pod, for messages.
        count: number of different cards; 0 means none at all.
        memory_mib: MiB on each card; None for the whole card, or when `percentage` is given.
        percentage: percent of each card's memory, 1 to 99; None when absolute or whole.
        cores: percent of each card's compute, 0 (no limit) to 100.
        priority: task priority; None when not given.
        notices: what had to be guessed or changed.
    """

    path: str
    count: int
    memory_mib: int | None
    percentage: int | None
    cores: int
    priority: int | None
    notices: tuple[Notice, ...] = ()

    @property
    def exclusive(self) -> bool:
        """Tell whether the container wants cards that nobody else uses (ruling 4)."""
        return self.cores == _WHOLE


@dataclass(frozen=True, slots=True)
class _Amounts:
    """One family's amounts in a container, by resource name, as written and defaulted."""

    path: str
    limits: Mapping[str, Quantity]
    requests: Mapping[str, Quantity]

    def anywhere(self, name: str) -> bool:
        return name in self.limits or name in self.requests


def card_names(family: Family) -> tuple[str, ...]:
    """Return the resource names that ask for cards, without those switched off."""
    names = family.resources
    return tuple(n for n in (names.count, names.memory, names.percentage, names.cores) if n)


def managed_names(family: Family) -> tuple[str, ...]:
    """Return the resource names that a family converts, without those switched off."""
    priority = family.resources.priority
    return (*card_names(family), priority) if priority else card_names(family)


def carries(container: Json, names: Collection[str]) -> bool:
    """Tell whether a container names any of these resources in limits or requests."""
    resources = container.get("resources")
    if not isinstance(resources, Mapping):
        return False
    kept = (resources.get(section) for section in ("limits", "requests"))
    return any(
        isinstance(amounts, Mapping) and name in amounts for amounts in kept for name in names
    )


def read_request(container: Json, path: str, family: Family) -> Request | None:
    """Read what a container asks of a family; None when it is not a request in legacy's eyes.

    Args:
        container: the container, as JSON.
        path: where it stands, such as `spec.containers[0]`.
        family: the vocabulary.

    Raises:
        RejectedPod: for what the API server or legacy would refuse, or would never run.
    """
    amounts = _read_amounts(container, f"{path}.resources", family)
    _check_percentage(amounts, family.resources)
    limits = _with_defaults(amounts, family)
    _check_as_api_server(amounts, limits)
    names = family.resources
    if names.count not in limits:
        return _only_priority(amounts, names)
    return _parse(amounts.path, limits, family)


def _read_amounts(container: Json, path: str, family: Family) -> _Amounts:
    resources = container.get("resources")
    kept: dict[str, dict[str, Quantity]] = {"limits": {}, "requests": {}}
    for section, found in kept.items():
        written = resources.get(section) if isinstance(resources, Mapping) else None
        if isinstance(written, Mapping):
            for name in managed_names(family):
                if name in written:
                    found[name] = _read_amount(written[name], f"{path}.{section}.{name}")
    return _Amounts(path=path, limits=kept["limits"], requests=kept["requests"])


def _read_amount(written: object, path: str) -> Quantity:
    try:
        return parse(written)
    except QuantityError as error:
        raise RejectedPod(path, str(error)) from error


def _check_percentage(amounts: _Amounts, names: ResourceNames) -> None:
    """Refuse what the legacy webhook refused: it looks at limits first, then at requests."""
    for section, held in (("limits", amounts.limits), ("requests", amounts.requests)):
        if names.percentage in held:
            found = held[names.percentage]
            if not (found.is_integer and 0 <= found.integer <= _WHOLE):
                raise RejectedPod(
                    f"{amounts.path}.{section}.{names.percentage}",
                    f"found {found}, expected a whole number from 0 to 100",
                )
            return


def _with_defaults(amounts: _Amounts, family: Family) -> dict[str, Quantity]:
    """Return the limits after what the legacy webhook added: the count, then exclusive cores."""
    names = family.resources
    limits = dict(amounts.limits)
    others = (names.memory, names.percentage, names.cores)
    if names.count not in limits and family.default_count and any(n in limits for n in others if n):
        limits[names.count] = _whole(family.default_count)
    counted = names.count in limits or names.count in amounts.requests
    if counted and names.cores and not amounts.anywhere(names.cores) and _wants_all(amounts, names):
        limits[names.cores] = _whole(_WHOLE)
    return limits


def _wants_all(amounts: _Amounts, names: ResourceNames) -> bool:
    """Tell whether memory words mean a whole card, which makes it exclusive (ruling 4)."""
    for held in (amounts.limits, amounts.requests):
        if names.percentage in held:
            return held[names.percentage] == _whole(_WHOLE)
    return not amounts.anywhere(names.memory)


def _check_as_api_server(amounts: _Amounts, limits: Mapping[str, Quantity]) -> None:
    """Refuse what the API server refuses of an extended resource (ruling 9)."""
    for name, limit in limits.items():
        _check_amount(limit, f"{amounts.path}.limits.{name}")
    for name, request in amounts.requests.items():
        path = f"{amounts.path}.requests.{name}"
        _check_amount(request, path)
        if name not in limits:
            raise RejectedPod(
                path,
                "Limit must be set for non overcommitable resources",
                f"write {name} under limits",
            )
        if request != limits[name]:
            raise RejectedPod(
                path,
                f"Invalid value: {request}: must be equal to {name} limit of {limits[name]}",
                "write it under limits only",
            )


def _check_amount(amount: Quantity, path: str) -> None:
    if amount.nanos < 0:
        raise RejectedPod(path, f"Invalid value: {amount}: must be greater than or equal to 0")
    if not amount.is_integer:
        raise RejectedPod(path, f"Invalid value: {amount}: must be an integer")


def _only_priority(amounts: _Amounts, names: ResourceNames) -> Request | None:
    """Return a request for no card that carries the priority, or None for a pod left alone."""
    if names.priority not in amounts.limits or len(amounts.limits) > 1:
        return None
    path = f"{amounts.path}.limits"
    priority = _int32(f"{path}.{names.priority}", amounts.limits[names.priority])
    return Request(path, 0, None, None, cores=0, priority=priority)


def _parse(path: str, limits: Mapping[str, Quantity], family: Family) -> Request:
    """Turn checked amounts into meaning, as the legacy parser and its placement do together."""
    names = family.resources
    path = f"{path}.limits"
    memory = _memory_mib(path, limits, family)
    percentage = limits[names.percentage].integer if names.percentage in limits else 0
    priority = (
        _int32(f"{path}.{names.priority}", limits[names.priority])
        if names.priority in limits
        else None
    )
    cores, notices = _cores(path, limits, family)
    return Request(
        path=path,
        count=_int32(f"{path}.{names.count}", limits[names.count]),
        memory_mib=memory or (None if percentage else family.default_memory or None),
        percentage=percentage if not memory and 0 < percentage < _WHOLE else None,
        cores=cores,
        priority=priority,
        notices=notices,
    )


def _memory_mib(path: str, limits: Mapping[str, Quantity], family: Family) -> int:
    """Return MiB per card, 0 when not given; refuse amounts that were meant as bytes (ruling 6)."""
    name = family.resources.memory
    if name not in limits:
        return 0
    written = limits[name].integer
    memory = written * (family.memory_factor or 1)
    if memory < MEMORY_IMPLAUSIBLE_MIB:
        return memory
    meant = max(1, round(written / _BYTES_IN_MIB)) // (family.memory_factor or 1)
    raise RejectedPod(
        f"{path}.{name}",
        f"found {limits[name]}, which means {memory} MiB on each card, more than any card has:"
        " the unit is MiB, not bytes",
        f"write {name}: {max(1, meant)}",
    )


def _cores(
    path: str, limits: Mapping[str, Quantity], family: Family
) -> tuple[int, tuple[Notice, ...]]:
    """Return cores per card, clamped as placement clamps them (ruling 5)."""
    name = family.resources.cores
    if name not in limits:
        return min(family.default_cores, _WHOLE), ()
    cores = _int32(f"{path}.{name}", limits[name])
    if cores <= _WHOLE:
        return cores, ()
    notice = Notice(
        Code.CORES_CLAMPED,
        f"{path}.{name}",
        f"found {cores} percent of a card, used 100, as HAMi does",
    )
    return _WHOLE, (notice,)


def _int32(path: str, amount: Quantity) -> int:
    if amount.integer > INT32_MAX:
        raise RejectedPod(path, f"found {amount}, expected at most {INT32_MAX}")
    return amount.integer


def _whole(number: int) -> Quantity:
    return parse(number)
