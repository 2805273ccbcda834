"""Decide what a claim becomes on this node: its shares, checked against all others. Pure.

The scheduler has already decided who gets what; its known faults make the node the last line of
defence (ruling 40), so amounts are added up here once more.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from hami_dra.migration import Json
from hami_dra.node.allocation import PrepareError, own_shares
from hami_dra.node.devices import WHOLE, device_name
from hami_dra.node.inventory import Card
from hami_dra.node.share import Amounts, Share

MOST_TENANTS: Final = WHOLE
"""The most tenants that a card can be split for."""


@dataclass(frozen=True)
class Node:
    """What this node offers.

    Attributes:
        name: the node's name, which is its pool's too.
        driver: our driver's name.
        cards: its cards by UUID.
        split_count: how many tenants a card may have, HAMi's deviceSplitCount.
        lost: what is wrong with cards that nobody can use, by UUID.
    """

    name: str
    driver: str
    cards: Mapping[str, Card]
    split_count: int = 10
    lost: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def devices(self) -> Mapping[str, Card]:
        """Return the cards by device name."""
        return {device_name(uuid): card for uuid, card in self.cards.items()}

    @property
    def default_slots(self) -> int:
        """Return the slots of a tenant that asks for none."""
        return WHOLE // self.split_count


@dataclass(frozen=True, slots=True)
class Holding:
    """What all other claims hold of one card.

    Attributes:
        amounts: their sum.
        tenants: how many shares that is.
        claims: who they are, as `namespace/name`.
    """

    amounts: Amounts = field(default_factory=Amounts)
    tenants: int = 0
    claims: tuple[str, ...] = ()

    def plus(self, share: Share, claim: str) -> "Holding":
        """Add one share of a claim."""
        named = self.claims if claim in self.claims else (*self.claims, claim)
        return Holding(self.amounts + share.amounts, self.tenants + 1, named)


Held = Callable[[str], Holding | None]
"""Return what other claims hold of the card with this UUID; None is nothing."""


def plan(claim: Json, node: Node, held: Held) -> tuple[Share, ...]:
    """Return the shares to prepare for a claim.

    Args:
        claim: the ResourceClaim as the API server has it.
        node: what this node offers.
        held: what other claims hold of a card, by its UUID.

    Raises:
        PrepareError: if the claim cannot be honoured, in a sentence for the pod's events.
    """
    shares = own_shares(
        claim,
        driver=node.driver,
        node=node.name,
        devices=node.devices,
        default_slots=node.default_slots,
    )
    metadata = claim["metadata"]
    name = f"{metadata.get('namespace')}/{metadata.get('name')}"
    totals: dict[str, Holding] = {}
    for share in shares:
        _refuse_lost(share, node)
        before = totals.get(share.uuid) or held(share.uuid) or Holding()
        after = before.plus(share, name)
        _refuse_excess(share, node, before, after)
        totals[share.uuid] = after
    return shares


def _refuse_lost(share: Share, node: Node) -> None:
    """Refuse a card that failed for good after the scheduler had chosen it."""
    if wrong := node.lost.get(share.uuid):
        raise PrepareError(
            f"card {share.device} cannot be used: {wrong}; delete the pod so that it is allocated"
            " anew"
        )


def _refuse_excess(share: Share, node: Node, before: Holding, after: Holding) -> None:
    """Refuse what would give a card away for more than it has."""
    whole = Amounts(node.cards[share.uuid].memory_mib, WHOLE, WHOLE)
    checks = (
        ("Mi of memory", share.amounts.memory_mib, after.amounts.memory_mib, whole.memory_mib),
        ("% of compute", share.amounts.cores, after.amounts.cores, whole.cores),
        ("slots", share.amounts.slots, after.amounts.slots, whole.slots),
        # Where 100 is no multiple of the split count, slots let one tenant too many in (ruling 4).
        ("tenant", 1, after.tenants, max(node.split_count, 1)),
    )
    for unit, asked, total, most in checks:
        if total > most:
            raise PrepareError(
                f"card {share.device} would be given away for more than it has: {asked} {unit} on"
                f" top of {total - asked} of {most}, held by {_list(before.claims)}"
            )


def _list(claims: tuple[str, ...]) -> str:
    shown = ", ".join(claims[:3]) or "this claim itself"
    return f"{shown} and {len(claims) - 3} more" if len(claims) > 3 else shown  # noqa: PLR2004 - as many as shown
