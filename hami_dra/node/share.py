"""What a claim holds of this node's cards. Pure.

A *share* is one allocation result: a part of one card. A claim may hold several shares of one
card; the container is held to their sum, because the scheduler charged the claim as a whole.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from hami_dra.node.inventory import Card

_SUFFIX_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts of what a card is shared by (ruling 37).

    Attributes:
        memory_mib: device memory, in MiB.
        cores: compute, in percent of the card.
        slots: tenants, in percent of the card.
    """

    memory_mib: int = 0
    cores: int = 0
    slots: int = 0

    def __add__(self, other: Self) -> "Amounts":
        return Amounts(
            self.memory_mib + other.memory_mib,
            self.cores + other.cores,
            self.slots + other.slots,
        )


@dataclass(frozen=True)
class Share:
    """A part of one card, as the scheduler allocated it.

    Attributes:
        request: the request of the claim that it answers, without a sub-request's name.
        pool: the pool of the device, which is the node's name.
        device: the device's name in that pool.
        share_id: the allocation's `shareID`; None where the server gave none.
        uuid: the card's UUID.
        amounts: what it is charged.
    """

    request: str
    pool: str
    device: str
    share_id: str | None
    uuid: str
    amounts: Amounts

    @cached_property
    def suffix(self) -> str:
        """Tell apart the shares that one claim holds of one card, the same way for ever."""
        identity = f"{self.request}\0{self.share_id or ''}"
        return hashlib.sha256(identity.encode()).hexdigest()[:_SUFFIX_DIGITS]


@dataclass(frozen=True, slots=True)
class CardLimit:
    """What the containers of a claim may use of one card.

    Attributes:
        uuid: the card's UUID.
        memory_mib: device memory, in MiB.
        cores: compute, in percent of the card; 0 when it is not limited.
    """

    uuid: str
    memory_mib: int
    cores: int


def card_limits(shares: Iterable[Share], cards: Mapping[str, Card]) -> tuple[CardLimit, ...]:
    """Add a claim's shares up by card, in the order in which CUDA numbers the cards.

    Args:
        shares: what the claim holds.
        cards: this node's cards by UUID; all that are held must be among them.
    """
    held: dict[str, Amounts] = {}
    unlimited: set[str] = set()
    for share in shares:
        held[share.uuid] = held.get(share.uuid, Amounts()) + share.amounts
        if share.amounts.cores == 0:
            unlimited.add(share.uuid)
    ordered = sorted((cards[uuid] for uuid in held), key=cuda_position)
    return tuple(
        CardLimit(
            uuid=card.uuid,
            memory_mib=held[card.uuid].memory_mib,
            cores=0 if card.uuid in unlimited else held[card.uuid].cores,
        )
        for card in ordered
    )


def cuda_position(card: Card) -> tuple[tuple[int, ...], str]:
    """Return a key that sorts cards as CUDA numbers them under CUDA_DEVICE_ORDER=PCI_BUS_ID.

    NVML writes the domain with eight digits and the kernel with four, so numbers are compared.
    """
    digits = card.pcie_bus_id.replace(".", ":").split(":")
    try:
        return tuple(int(part, 16) for part in digits), card.uuid
    except ValueError:
        return (), card.uuid
