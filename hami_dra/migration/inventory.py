"""What ResourceSlices say of card sizes, so that percentages become amounts (ruling 7)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from hami_dra.migration.json import Json
from hami_dra.migration.quantity import NANO, QuantityError, parse
from hami_dra.migration.shape import Cards

SHAREABLE: Final = "hami-gpu"
"""Value of the `type` attribute of a card that can be shared."""

MIB: Final = 2**20
"""Bytes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one ResourceSlice says of card sizes.

    Attributes:
        pool: the slice's pool, of which only the newest generation counts.
        generation: the pool's generation that the slice belongs to.
        memory_mib: the sizes of its shareable cards.
    """

    pool: str
    generation: int
    memory_mib: frozenset[int]


def sizes_of(item: Json, *, driver: str, card_type: str = SHAREABLE) -> Sizes:
    """Reduce a ResourceSlice to its card sizes."""
    spec = item["spec"]
    found = (
        _memory_mib(device, driver)
        for device in spec.get("devices") or ()
        if device.get("allowMultipleAllocations") and _type(device, driver) == card_type
    )
    return Sizes(
        pool=spec["pool"]["name"],
        generation=spec["pool"]["generation"],
        memory_mib=frozenset(size for size in found if size),
    )


def cards_of(slices: Collection[Sizes]) -> Cards:
    """Return the sizes of all pools, each as its newest generation has it."""
    newest: dict[str, int] = {}
    for one in slices:
        newest[one.pool] = max(one.generation, newest.get(one.pool, 0))
    return Cards(
        memory_mib=frozenset().union(
            *(one.memory_mib for one in slices if one.generation == newest[one.pool])
        )
    )


def _type(device: Json, driver: str) -> str | None:
    attributes = device.get("attributes") or {}
    attribute = attributes.get("type") or attributes.get(f"{driver}/type") or {}
    found = attribute.get("string")
    return found if isinstance(found, str) else None


def _memory_mib(device: Json, driver: str) -> int:
    capacity = device.get("capacity") or {}
    memory = capacity.get("memory") or capacity.get(f"{driver}/memory") or {}
    try:
        return parse(memory.get("value")).nanos // (NANO * MIB)
    except QuantityError:
        return 0  # the API server admits only quantities; a card without a size offers no share
