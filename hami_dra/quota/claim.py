"""Read a ResourceClaim: what it takes of the cards of our families.

Before allocation that is what it asks for, in the largest of its alternatives; afterwards it is
what `status.allocation` says, so a smaller card gives quota back. Rules: .github/QUOTAS.md.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hami_dra.migration import Family, Json, Policy, RejectedPod
from hami_dra.migration.claim import MOST_CARDS
from hami_dra.migration.inventory import MIB
from hami_dra.migration.json import as_array, as_object
from hami_dra.migration.legacy import WHOLE
from hami_dra.migration.quantity import NANO, QuantityError, parse
from hami_dra.migration.selector import is_model
from hami_dra.quota.amounts import Amounts, largest, total

Sizes = Mapping[str, int]
"""The size of the largest card in MiB, by driver. The largest, because before allocation nobody
knows which card a claim for a whole one will get."""


@dataclass(frozen=True, slots=True)
class Share:
    """What is taken of some cards of one family, alike of each.

    Attributes:
        family: whose cards.
        cards: how many.
        memory_mib: of each card; None for all of it.
        cores: of each card, in percent.
        slices: of each card, for a family that counts slices; 0 otherwise.
    """

    family: Family
    cards: int
    memory_mib: int | None
    cores: int
    slices: int = 0

    def amounts(self, sizes: Sizes) -> dict[str, int | None]:
        """Return what that is of each resource of the family."""
        family, names = self.family, self.family.resources
        each = self.memory_mib
        if each is None:
            each = family.memory_capacity or sizes.get(family.driver)
        found: dict[str, int | None] = {
            names.count: self.cards * (self.slices or 1),
            names.memory: None if each is None else self.cards * each,
            names.cores: self.cards * self.cores,
        }
        found.pop("", None)
        return found


@dataclass(frozen=True)
class Claimed:
    """What one claim takes.

    Attributes:
        requests: for each request, or each allocated device, the alternatives of what it takes. The
            largest counts, for each resource by itself.
    """

    requests: tuple[tuple[Share, ...], ...] = ()

    def amounts(self, sizes: Sizes) -> Amounts:
        """Return what that is of each resource; shared, so never to be changed."""
        return self._with(sizes) if self._fixed is None else self._fixed

    @cached_property
    def _fixed(self) -> Amounts | None:
        """What it is whatever the sizes are, which is so for all but whole cards; else None.

        A namespace has many claims, and they are added up for each pod that is created.
        """
        known = self._with({})
        return None if None in known.values() else known

    def _with(self, sizes: Sizes) -> Amounts:
        return total(largest(one.amounts(sizes) for one in each) for each in self.requests)


@dataclass(frozen=True, slots=True)
class Known:
    """A claim that the API server has shown.

    Attributes:
        uid: tells it from an earlier one of the same name.
        name: its name.
        version: its resource version.
        claimed: what it takes.
        holders: the pods that it is reserved for, or else the one that owns it.
    """

    uid: str
    name: str
    version: int
    claimed: Claimed
    holders: tuple[str, ...] = ()


def read_claim(item: Json, policy: Policy) -> Known:
    """Read a claim as the API server has stored it.

    Raises:
        RejectedPod: if it does not have the shape of one.
    """
    metadata = as_object(item.get("metadata"), "metadata")
    version = str(metadata.get("resourceVersion") or "")
    return Known(
        uid=str(metadata.get("uid") or ""),
        name=str(metadata.get("name") or ""),
        version=int(version) if version.isascii() and version.isdigit() else 0,
        claimed=Claimed(tuple(_taken(item, policy))),
        holders=_holders(item),
    )


def read_asked(spec: Json, policy: Policy) -> Claimed:
    """Return what a claim's spec asks for: of a claim, or inside of a template.

    Raises:
        RejectedPod: if it does not have the shape of one.
    """
    return Claimed(tuple(shares for _, shares in _asked(spec, policy) if shares))


def holdings(every: Iterable[Known], sizes: Sizes) -> dict[str, int | None]:
    """Add up what claims take."""
    return total(one.claimed.amounts(sizes) for one in every)


def _taken(item: Json, policy: Policy) -> Iterator[tuple[Share, ...]]:
    """Yield what each request asks for or, once there is an allocation, what each device gave."""
    status = as_object(item.get("status"), "status")
    if not status.get("allocation"):
        yield from read_asked(as_object(item.get("spec"), "spec"), policy).requests
        return
    asked = dict(_asked(as_object(item.get("spec"), "spec"), policy))
    allocation = as_object(status["allocation"], "status.allocation")
    path = "status.allocation.devices"
    results = as_object(allocation.get("devices"), path).get("results")
    for result in as_array(results, f"{path}.results"):
        shares = tuple(_given(as_object(result, f"{path}.results"), asked, policy))
        if shares:
            yield shares


def _given(result: Json, asked: Mapping[str, tuple[Share, ...]], policy: Policy) -> Iterator[Share]:
    """Yield what an allocated device gave, once for each family that it may belong to."""
    if result.get("adminAccess"):
        return
    driver = result.get("driver")
    request = str(result.get("request") or "").partition("/")[0]
    named = dict.fromkeys(share.family for share in asked.get(request, ()))
    families = [f for f in named if f.driver == driver] or [
        f for f in policy.families if f.device_class and f.driver == driver
    ]
    path = "status.allocation.devices.results.consumedCapacity"
    for family in families:
        yield _share(family, 1, as_object(result.get("consumedCapacity"), path), path)


def _asked(spec: Json, policy: Policy) -> Iterator[tuple[str, tuple[Share, ...]]]:
    """Yield the name of each request and what its alternatives ask of our families."""
    path = "spec.devices.requests"
    devices = as_object(spec.get("devices"), "spec.devices")
    for found in as_array(devices.get("requests"), path):
        request = as_object(found, path)
        exactly = [request["exactly"]] if request.get("exactly") else []
        several = as_array(request.get("firstAvailable"), f"{path}.firstAvailable")
        shares = [
            share
            for each in (*exactly, *several)
            for share in _alternative(as_object(each, path), path, policy)
        ]
        yield str(request.get("name") or ""), tuple(shares)


def _alternative(asked: Json, path: str, policy: Policy) -> Iterator[Share]:
    """Yield what one alternative asks for, once for each family that it may be meant for."""
    if asked.get("adminAccess"):  # watches a card that others use, and takes nothing of it
        return
    capacity = as_object(asked.get("capacity"), f"{path}.capacity")
    amounts = as_object(capacity.get("requests"), f"{path}.capacity.requests")
    for family in _families(asked, path, policy):
        yield _share(family, _count(asked, path), amounts, f"{path}.capacity.requests")


def _families(asked: Json, path: str, policy: Policy) -> list[Family]:
    """Return the families that a request may be meant for; nearly always there is one.

    Chips that share a DeviceClass differ in one selector, which holds whoever wrote it; a request
    without it counts for each of them.
    """
    name = asked.get("deviceClassName")
    if not isinstance(name, str) or name not in policy.device_classes:
        return []
    candidates = [
        f
        for f in policy.families
        if f.device_class and name in (f.device_class, f.mig_device_class)
    ]
    if len(candidates) == 1:
        return candidates
    conditions = [
        as_object(each.get("cel"), f"{path}.selectors").get("expression")
        for each in as_array(asked.get("selectors"), f"{path}.selectors")
        if isinstance(each, dict)
    ]
    exact = [f for f in candidates if f.model and is_model(f) in conditions]
    return exact or candidates


def _count(asked: Json, path: str) -> int:
    """Return how many cards are asked for; all that match count as the most there can be."""
    if asked.get("allocationMode") == "All":
        return MOST_CARDS
    count = asked.get("count") or 1
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise RejectedPod(f"{path}.count", f"found {count!r:.40}, expected a number of devices")
    return count


def _share(family: Family, cards: int, amounts: Json, path: str) -> Share:
    """Return what amounts mean, of which the driver charges all where nothing is said.

    Only the name under which the driver publishes a capacity counts when asked for; what was
    consumed carries either spelling.
    """
    names = family.capacities
    memory = _amount(amounts, names.memory, family, path)
    slices = _amount(amounts, names.slices, family, path)
    return Share(
        family=family,
        cards=cards,
        memory_mib=None if memory is None else max(1, -(-memory // (NANO * MIB))),
        cores=_percent(_amount(amounts, names.cores, family, path), family),
        slices=0 if slices is None else -(-slices // NANO),
    )


def _percent(nanos: int | None, family: Family) -> int:
    """Return compute in percent; all of it where it is not said, or in units nobody knows."""
    if nanos is None or not family.core_units:
        return WHOLE
    units = -(-nanos // NANO)  # a part of a unit is charged as one
    return units * WHOLE // family.core_units


def _amount(amounts: Json, name: str, family: Family, path: str) -> int | None:
    """Return an amount in nano units, None where it is not there."""
    consumed = path.startswith("status")
    for spelling in (name, f"{family.driver}/{name}") if consumed else (name,):
        if name and spelling in amounts:
            return _nanos(amounts[spelling], f"{path}.{spelling}")
    return None


def _nanos(written: Any, path: str) -> int:  # noqa: ANN401 - any JSON
    try:
        return max(0, parse(written).nanos)
    except QuantityError as error:
        raise RejectedPod(path, str(error)) from error


def _holders(item: Json) -> tuple[str, ...]:
    """Name the pods that hold a claim; before it is reserved, the pod that it was made for."""
    status = as_object(item.get("status"), "status")
    reserved = as_array(status.get("reservedFor"), "status.reservedFor")
    metadata = as_object(item.get("metadata"), "metadata")
    owners = as_array(metadata.get("ownerReferences"), "metadata.ownerReferences")
    pods = [each for each in reserved if isinstance(each, dict) and each.get("resource") == "pods"]
    owned = [each for each in owners if isinstance(each, dict) and each.get("kind") == "Pod"]
    return tuple(str(each.get("name") or "") for each in (pods or owned))
