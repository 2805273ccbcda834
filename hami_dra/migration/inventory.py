"""What ResourceSlices say of card sizes, so that percentages become amounts (ruling 7)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from hami_dra.migration.cards import CardKind, Cards
from hami_dra.migration.json import Json
from hami_dra.migration.policy import Policy
from hami_dra.migration.quantity import NANO, QuantityError, parse

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
        kinds: the kinds of its shareable cards.
    """

    pool: str
    generation: int
    kinds: frozenset[CardKind]

    @property
    def memory_mib(self) -> frozenset[int]:
        """Return the sizes of its shareable cards, in MiB."""
        return frozenset(kind.memory_mib for kind in self.kinds)


def sizes_of(
    item: Json, *, driver: str, card_type: str = SHAREABLE, model: str = "productName"
) -> Sizes:
    """Reduce a ResourceSlice to the kinds of its cards.

    Args:
        item: the slice.
        driver: the domain of its attributes.
        card_type: value of the `type` attribute of a shareable card.
        model: the attribute with a card's raw model name.
    """
    spec = item["spec"]
    found = (
        CardKind(driver, _text(device, driver, model), _memory_mib(device, driver))
        for device in spec.get("devices") or ()
        if device.get("allowMultipleAllocations") and _text(device, driver, "type") == card_type
    )
    return Sizes(
        pool=spec["pool"]["name"],
        generation=spec["pool"]["generation"],
        kinds=frozenset(kind for kind in found if kind.memory_mib),
    )


def cards_of(slices: Collection[Sizes]) -> Cards:
    """Return the cards of all pools, each as its newest generation has them."""
    newest: dict[str, int] = {}
    for one in slices:
        newest[one.pool] = max(one.generation, newest.get(one.pool, 0))
    return Cards(
        kinds=frozenset().union(
            *(one.kinds for one in slices if one.generation == newest[one.pool])
        )
    )


class CardReader:
    """Reads the cards in ResourceSlices one by one, and keeps sizes and names alone.

    Args:
        policy: names the drivers whose slices count.
    """

    def __init__(self, policy: Policy) -> None:
        models = {each.driver: each.type_attribute for each in policy.families}
        self._models = models
        self._found: dict[str, list[Sizes]] = {driver: [] for driver in models}

    def take(self, item: Json) -> None:
        """Take a slice in."""
        driver = item["spec"]["driver"]
        if driver in self._models:
            sizes = sizes_of(item, driver=driver, model=self._models[driver])
            self._found[driver].append(sizes)

    @property
    def cards(self) -> Cards:
        """Return the cards of all slices that were taken in."""
        found = (cards_of(each).kinds for each in self._found.values())
        return Cards(kinds=frozenset[CardKind]().union(*found))


def cards_in(slices: Iterable[Json], policy: Policy) -> Cards:
    """Return the cards in ResourceSlices of the drivers that a policy names."""
    reader = CardReader(policy)
    for each in slices:
        reader.take(each)
    return reader.cards


def _text(device: Json, driver: str, name: str) -> str:
    """Return a text attribute; empty where there is none."""
    attributes = device.get("attributes") or {}
    attribute = attributes.get(name) or attributes.get(f"{driver}/{name}") or {}
    found = attribute.get("string")
    return found if isinstance(found, str) else ""


def _memory_mib(device: Json, driver: str) -> int:
    capacity = device.get("capacity") or {}
    memory = capacity.get("memory") or capacity.get(f"{driver}/memory") or {}
    try:
        return parse(memory.get("value")).nanos // (NANO * MIB)
    except QuantityError:
        return 0  # the API server admits only quantities; a card without a size offers no share
