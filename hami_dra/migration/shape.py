"""Decide the shape of a claim: what a container means, in the words of its family's driver."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hami_dra.migration.claim import MOST_CARDS, MOST_SIZES, Shape
from hami_dra.migration.family import Family
from hami_dra.migration.legacy import WHOLE, Request
from hami_dra.migration.names import CORE_POLICY, PRIORITY
from hami_dra.migration.notice import RejectedPod
from hami_dra.migration.selector import has_memory

_PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class Choice:
    """Which cards of a family a pod accepts.

    Attributes:
        device_class: the DeviceClass.
        selectors: CEL conditions.
        is_mig: whether the class offers partitions, which have memory and nothing else to share.
    """

    device_class: str
    selectors: tuple[str, ...]
    is_mig: bool = False


# Pods of one workload mean the same; more different ones than a cluster has are forgotten.
@lru_cache(maxsize=1024)
def shape_of(
    request: Request,
    family: Family,
    choice: Choice,
    *,
    alone: bool,
    repeats_cards: bool,
    sizes: tuple[int, ...],
    core_policy: str,
) -> Shape:
    """Return the shape of the claim for what one container asks of one family.

    Args:
        request: what the container means; at least one card.
        family: whose driver serves it.
        choice: which cards the pod accepts.
        alone: whether nobody else may use the cards.
        repeats_cards: whether the cluster may give one card twice to a request for several.
        sizes: MiB of the cards that a percentage is resolved against, ascending (ruling 7).
        core_policy: how strictly shares of compute are kept; empty for the node's own choice.

    Raises:
        RejectedPod: if the API cannot express it.
    """
    if request.count > MOST_CARDS:
        raise RejectedPod(
            f"{request.path}.{family.resources.count}",
            f"found {request.count} cards, expected at most {MOST_CARDS}, which is Kubernetes'"
            " limit for one claim",
            "spread the work over several pods",
        )
    many = repeats_cards and request.count > 1
    return Shape(
        device_class=choice.device_class,
        driver=family.driver,
        request=family.entry_prefix,
        count=request.count,
        capacity=_capacity(request, family, choice, alone=alone),
        memory_by_size=_by_size(request, family, sizes),
        selectors=(*choice.selectors, *_least_card(request, family)),
        distinct=f"{family.driver}/{family.uuid_attribute}" if many else "",
        words=_words(request),
        annotations=_annotations(request, family, core_policy),
    )


def _annotations(request: Request, family: Family, core_policy: str) -> tuple[tuple[str, str], ...]:
    """Tell the agent what a variable tells the native library, which must not trust variables."""
    if not family.resources.priority:  # whose library knows neither
        return ()
    found = []
    if core_policy not in {"", "default"}:
        found.append((CORE_POLICY, core_policy))
    if request.priority is not None and request.priority >= 0:
        found.append((PRIORITY, str(request.priority)))
    return tuple(found)


def _capacity(
    request: Request, family: Family, choice: Choice, *, alone: bool
) -> tuple[tuple[str, str], ...]:
    """Return what is asked of each card, apart from a memory that depends on its size."""
    names = family.capacities
    asked: dict[str, str] = {}
    if names.cores and not choice.is_mig:
        units = _core_units(request, family)
        if units is not None:
            asked[names.cores] = str(units)
    if names.memory and request.memory_mib is not None:
        asked[names.memory] = f"{request.memory_mib}Mi"
    if names.slots and alone and not choice.is_mig:
        asked[names.slots] = str(WHOLE)
    if names.slices and request.slices:
        asked[names.slices] = str(request.slices)
    return tuple(asked.items())


def _least_card(request: Request, family: Family) -> tuple[str, ...]:
    """Return the condition that a whole card is large enough, where somebody needs so much."""
    name = family.capacities.memory
    if not name or not request.least_card_mib:
        return ()
    return (has_memory(family.driver, name, request.least_card_mib, at_least=True),)


def _core_units(request: Request, family: Family) -> int | None:
    """Return compute in the driver's unit; None leaves it out, which means all of the card.

    Otherwise always written, zero too: what is left out is charged in full (ruling 2).
    """
    units = family.core_units
    if units == _PERCENT:
        return request.cores
    if units:
        return max(1, -(-request.cores * units // _PERCENT))
    if request.cores == WHOLE:
        return None
    raise RejectedPod(
        f"{request.path}.{family.resources.cores}",
        f"found {request.cores} percent, expected the policy to say how many units a card has",
        f"set coreUnits of the family {family.name}, or drop the cores",
    )


def _by_size(
    request: Request, family: Family, sizes: tuple[int, ...]
) -> tuple[tuple[str, int, int], ...]:
    """Resolve a percentage against each size of card, rounded down to MiB as legacy does."""
    if request.percentage is None:
        return ()
    if not 0 < len(sizes) <= MOST_SIZES:
        raise RejectedPod(
            f"{request.path}.{family.resources.percentage}",
            f"found {request.percentage} percent, which needs the card sizes of the cluster: "
            f"{len(sizes)} are known, expected 1 to {MOST_SIZES}",
            f"write the amount as {family.resources.memory} in MiB",
        )
    name = family.capacities.memory
    return tuple((name, size, size * request.percentage // _PERCENT) for size in sizes)


def _words(request: Request) -> str:
    """Say in a name what a person would ask: cards, memory and cores."""
    if request.percentage is not None:
        memory = f"{request.percentage}pct"
    else:
        memory = "full" if request.memory_mib is None else f"{request.memory_mib}mi"
    return f"{request.count}x{memory}-{request.cores}c"
