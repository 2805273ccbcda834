"""Read: what one container asked for in the old vocabulary, after all of HAMi's rules.

Reproduces the legacy webhook and parser together (rulings 1-9), and the API server's checks of
extended resources in between, because once we have stripped a key nobody else can check it.
Reads only; never writes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NoReturn

from hami_dra.migration.family import INT32_MAX, Family, ResourceNames
from hami_dra.migration.json import Json
from hami_dra.migration.memory import memory_of
from hami_dra.migration.notice import Code, Notice, RejectedPod
from hami_dra.migration.quantity import Quantity, QuantityError, parse

WHOLE: Final = 100
"""Percent of a card."""

_SECTIONS: Final = ("limits", "requests")
_HUNDRED: Final = Quantity(WHOLE * 10**9)


@dataclass(frozen=True, slots=True)
class Request:
    """What one container means, per card.

    Attributes:
        path: the container's limits in the pod, for messages.
        count: number of different cards; 0 means none at all.
        memory_mib: MiB on each card; None for the whole card, or when `percentage` is given.
        percentage: percent of each card's memory, 1 to 99; None when absolute or whole.
        cores: percent of each card's compute, 0 (no limit) to 100.
        names_cores: whether the container named the cores itself.
        slices: slices of the card, for a family that counts them; 0 otherwise.
        least_card_mib: MiB that a card must have although all of it is asked for; 0 for any.
        priority: task priority; None when not given.
        notices: what had to be guessed or changed.
    """

    path: str
    count: int
    memory_mib: int | None = None
    percentage: int | None = None
    cores: int = 0
    names_cores: bool = False
    slices: int = 0
    least_card_mib: int = 0
    priority: int | None = None
    notices: tuple[Notice, ...] = ()

    def on_cards_for(self, other: "Request") -> "Request":
        """Return this request on cards that have the memory which another one names.

        Of whole cards alone: a share already names as much itself, or does not hold the other.
        """
        least = other.memory_mib or 0
        if self.memory_mib is not None or least <= self.least_card_mib:
            return self
        return replace(self, least_card_mib=least)

    def holds(self, other: "Request") -> bool:
        """Tell whether a claim for this request serves another one as well, on every axis."""
        if other.count > self.count or other.cores > self.cores or other.slices > self.slices:
            return False
        if self.memory_mib is None and self.percentage is None:
            return True
        if self.percentage is not None:
            return other.percentage is not None and other.percentage <= self.percentage
        return (
            self.memory_mib is not None
            and other.memory_mib is not None
            and other.memory_mib <= self.memory_mib
        )


@dataclass(frozen=True, slots=True)
class _Amounts:
    """One family's amounts in a container, by resource name."""

    path: str
    limits: Mapping[str, Quantity]
    requests: Mapping[str, Quantity]

    def anywhere(self, name: str) -> bool:
        return name in self.limits or name in self.requests


def carries(container: Json, names: Collection[str]) -> bool:
    """Tell whether a container names any of these resources in limits or requests."""
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return False
    for section in _SECTIONS:
        amounts = resources.get(section)
        if isinstance(amounts, dict) and not amounts.keys().isdisjoint(names):
            return True
    return False


def read_request(
    container: Json, path: str, family: Family, annotations: Mapping[str, object]
) -> Request | None:
    """Read what a container asks of a family; None when it is not a request in legacy's eyes.

    Args:
        container: the container, as JSON.
        path: where it stands, such as `spec.containers[0]`.
        family: the vocabulary.
        annotations: of the pod; some vendors want one beside an amount.

    Raises:
        RejectedPod: for what the API server or legacy would refuse, or would never run.
    """
    path = f"{path}.resources"
    resources = container["resources"]
    limits, requests = (
        _texts(resources.get(section), f"{path}.{section}", family) for section in _SECTIONS
    )
    needed = family.cores_require
    granted = needed is None or annotations.get(needed.name) == needed.value
    return _read(limits, requests, path, family, granted)


def _texts(written: object, path: str, family: Family) -> tuple[str | None, ...]:
    """Return the amounts of all managed resources as text, None for those that are not there."""
    if not isinstance(written, dict):
        return ()
    return tuple(
        _text(written[name], path, name) if name in written else None
        for name in family.managed_names
    )


def _text(written: object, path: str, name: str) -> str:
    if isinstance(written, str):
        return written
    try:
        return parse(written).canonical
    except QuantityError as error:
        raise RejectedPod(f"{path}.{name}", str(error)) from error


# Pods of one workload ask the same, so what was read once is read again and again.
@lru_cache(maxsize=1024)
def _read(
    limits: tuple[str | None, ...],
    requests: tuple[str | None, ...],
    path: str,
    family: Family,
    cores_granted: bool,  # noqa: FBT001 - a cache wants positions
) -> Request | None:
    """Read amounts, given as text in the order of the family's managed names."""
    amounts = _Amounts(
        path=path,
        limits=_quantities(limits, f"{path}.limits", family),
        requests=_quantities(requests, f"{path}.requests", family),
    )
    if family.requests_suffice:
        amounts = replace(amounts, limits={**amounts.requests, **amounts.limits})
    _check_percentage(amounts, family.resources)
    effective = _with_defaults(amounts, family)
    _check_as_api_server(amounts, effective)
    if family.resources.count not in effective:
        return _only_priority(amounts, family.resources)
    return _parse(f"{path}.limits", effective, family, cores_granted=cores_granted)


def _quantities(texts: tuple[str | None, ...], path: str, family: Family) -> dict[str, Quantity]:
    return {
        name: _quantity(text, path, name)
        for name, text in zip(family.managed_names, texts, strict=False)
        if text is not None
    }


def _quantity(text: str, path: str, name: str) -> Quantity:
    try:
        return parse(text)
    except QuantityError as error:
        raise RejectedPod(f"{path}.{name}", str(error)) from error


def _check_percentage(amounts: _Amounts, names: ResourceNames) -> None:
    """Refuse what the legacy webhook refused: it looks at limits first, then at requests."""
    for section, held in (("limits", amounts.limits), ("requests", amounts.requests)):
        if names.percentage in held:
            found = held[names.percentage]
            if not (found.is_integer and 0 <= found.integer <= WHOLE):
                raise RejectedPod(
                    f"{amounts.path}.{section}.{names.percentage}",
                    f"found {found}, expected a whole number from 0 to 100",
                )
            return


def _with_defaults(amounts: _Amounts, family: Family) -> Mapping[str, Quantity]:
    """Return the limits after what the legacy webhook added: the count, then exclusive cores."""
    names, limits = family.resources, amounts.limits
    if names.count not in limits and any(name in limits for name in family.share_names):
        limits = {**limits, names.count: parse(family.default_count)}
    counted = names.count in limits or names.count in amounts.requests
    if counted and _is_exclusive(amounts, family):
        limits = {**limits, names.cores: _HUNDRED}
    return limits


def _is_exclusive(amounts: _Amounts, family: Family) -> bool:
    """Tell whether a count means whole cards: no cores named, and memory words for all of it."""
    names = family.resources
    if not family.count_is_exclusive or not names.cores or amounts.anywhere(names.cores):
        return False
    for held in (amounts.limits, amounts.requests):
        if names.percentage in held:
            return held[names.percentage] == _HUNDRED
    return not amounts.anywhere(names.memory)


def _check_as_api_server(amounts: _Amounts, limits: Mapping[str, Quantity]) -> None:
    """Refuse what the API server refuses of an extended resource (ruling 9)."""
    for name, limit in limits.items():
        _check_amount(limit, amounts.path, "limits", name)
    for name, request in amounts.requests.items():
        _check_amount(request, amounts.path, "requests", name)
        if name not in limits:
            raise RejectedPod(
                f"{amounts.path}.requests.{name}",
                "Limit must be set for non overcommitable resources",
                f"write {name} under limits",
            )
        if request != limits[name]:
            raise RejectedPod(
                f"{amounts.path}.requests.{name}",
                f"Invalid value: {request}: must be equal to {name} limit of {limits[name]}",
                "write it under limits only",
            )


def _check_amount(amount: Quantity, path: str, section: str, name: str) -> None:
    if amount.nanos < 0:
        reason = f"Invalid value: {amount}: must be greater than or equal to 0"
        raise RejectedPod(f"{path}.{section}.{name}", reason)
    if not amount.is_integer:
        reason = f"Invalid value: {amount}: must be an integer"
        raise RejectedPod(f"{path}.{section}.{name}", reason)


def _only_priority(amounts: _Amounts, names: ResourceNames) -> Request | None:
    """Return a request for no card that carries the priority, or None for a pod left alone."""
    if names.priority not in amounts.limits or len(amounts.limits) > 1:
        return None
    path = f"{amounts.path}.limits"
    return Request(path, 0, priority=_int32(path, names.priority, amounts.limits))


def _parse(
    path: str,
    limits: Mapping[str, Quantity],
    family: Family,
    *,
    cores_granted: bool,
) -> Request:
    """Turn checked amounts into meaning, as the legacy parser and its placement do together."""
    names = family.resources
    count = _int32(path, names.count, limits) or 0
    priority = _int32(path, names.priority, limits)
    if not count:
        return Request(path, 0, priority=priority)
    slices = count if family.count_means == "slices" else 0
    memory = memory_of(path, limits, family)
    cores = _int32(path, names.cores, limits)
    if cores and not cores_granted:
        _refuse_cores(path, cores, family)
    percent, clamped = _cores(path, cores, family)
    cards = 1 if slices else _grouped(path, count, family)
    if memory.is_step and cards > 1:
        raise RejectedPod(
            f"{path}.{names.count}",
            f"found {cards} cards with a part of their memory, expected one card or whole ones",
            f"drop {names.memory}, or ask for one card",
        )
    return Request(
        path=path,
        count=cards,
        memory_mib=memory.mib,
        percentage=memory.percentage,
        cores=percent,
        names_cores=cores is not None,
        slices=slices,
        priority=priority,
        notices=(*memory.notices, *clamped),
    )


def _grouped(path: str, count: int, family: Family) -> int:
    """Return how many cards a count means where cards come in groups only."""
    group = family.count_multiple
    if count == 1:
        return group
    if count % group:
        raise RejectedPod(
            f"{path}.{family.resources.count}",
            f"found {count}, expected 1 or a multiple of {group}: these chips come in groups",
        )
    return count


def _refuse_cores(path: str, cores: int, family: Family) -> NoReturn:
    """Refuse cores that a vendor grants only beside an annotation."""
    needed = family.cores_require
    words = f"{needed.name}: {needed.value}" if needed else ""
    raise RejectedPod(
        f"{path}.{family.resources.cores}",
        f"found {cores} without the annotation {words}",
        "add the annotation, or drop the cores",
    )


def _cores(path: str, cores: int | None, family: Family) -> tuple[int, tuple[Notice, ...]]:
    """Return cores per card, clamped as placement clamps them (ruling 5)."""
    if cores is None:
        return min(family.default_cores, WHOLE), ()
    if cores <= WHOLE:
        return cores, ()
    field = f"{path}.{family.resources.cores}"
    if not family.cores_clamp:
        raise RejectedPod(field, f"found {cores}, expected at most 100 percent of a card")
    message = f"found {cores} percent of a card, used 100, as HAMi does"
    return WHOLE, (Notice(Code.CORES_CLAMPED, field, message),)


def _int32(path: str, name: str, limits: Mapping[str, Quantity]) -> int | None:
    """Return an amount that legacy kept in 32 bits, or None where there is none."""
    if name not in limits:
        return None
    amount = limits[name].integer
    if amount > INT32_MAX:
        raise RejectedPod(f"{path}.{name}", f"found {limits[name]}, expected at most {INT32_MAX}")
    return amount
