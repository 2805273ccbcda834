"""Cards, claims and containers of one node, joined: what metrics and page are made of. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hami_dra.monitor.cards import CardReading
from hami_dra.monitor.claims import ClaimReading
from hami_dra.monitor.pods import Container, HeldClaim
from hami_dra.monitor.usage import Counted, Held
from hami_dra.node.share import Amounts, Share


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What one claim does on one card.

    Attributes:
        limit_bytes: up to which its processes may hold memory; None is no limit, or not known.
        held: the memory that they hold; None if that is not known.
        percent: of the card's time that they took; None if nobody measured it.
        counted: what only grows; None if that is not known.
    """

    limit_bytes: int | None = None
    held: Held | None = None
    percent: float | None = None
    counted: Counted | None = None


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """One claim and what it does, by card in CUDA's order; by none if its limits are not known."""

    claim: ClaimReading
    devices: Mapping[str, DeviceUse]

    def allocated(self) -> Mapping[str, Amounts]:
        """Add up its shares by card."""
        found: dict[str, Amounts] = {}
        for share in self.claim.record.shares:
            found[share.uuid] = found.get(share.uuid, Amounts()) + share.amounts
        return found


@dataclass(frozen=True, slots=True)
class Given:
    """What is given away of one card.

    Attributes:
        allocated: what its shares hold.
        shares: how many there are.
        unlimited: of those, the ones without a limit of compute.
        held: the memory that all its claims hold; None if one of them does not tell.
    """

    allocated: Amounts = field(default_factory=Amounts)
    shares: int = 0
    unlimited: int = 0
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class CardUse:
    """One card and what is given away of it.

    Attributes:
        card: what it says of itself.
        given: away of it; None if that is not known.
    """

    card: CardReading
    given: Given | None = None


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """One card of one container.

    Attributes:
        container: whose.
        vdevice: its number in the container, as CUDA numbers its cards.
        uuid: of the card.
        allocated: what the container's claims hold of it.
        use: what the processes of these claims do on it.
    """

    container: Container
    vdevice: int
    uuid: str
    allocated: Amounts
    use: DeviceUse


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One node at one moment.

    Attributes:
        node: its name.
        cards: in their order.
        containers: each once for each of its cards.
        claims: how many are prepared; None if that is not known.
        unnamed: claims that no container has that the kubelet lists; None if it is not known who
            has which, and then there are no containers either.
        works: whether each source answered, by name.
        measured_age_s: of the agent's newest measurement.
        left_out: claims that were not looked at; None if that is not known.
        errors: failed questions so far, by what was asked and the card's UUID, empty for none.
        refused: files that were not believed so far, by file.
    """

    node: str
    cards: tuple[CardUse, ...] = ()
    containers: tuple[ContainerUse, ...] = ()
    claims: int | None = 0
    unnamed: int | None = 0
    works: Mapping[str, bool] = field(default_factory=dict)
    measured_age_s: float | None = None
    left_out: int | None = 0
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)


def card_uses(
    cards: Iterable[CardReading], claims: Sequence[ClaimUse] | None
) -> tuple[CardUse, ...]:
    """Add up what is given away of each card; None are claims that nobody can tell."""
    if claims is None:
        return tuple(CardUse(card) for card in cards)
    shares: dict[str, list[Share]] = {}
    uses: dict[str, list[DeviceUse]] = {}
    for claim in claims:
        for share in claim.claim.record.shares:
            shares.setdefault(share.uuid, []).append(share)
        for uuid in claim.allocated():
            uses.setdefault(uuid, []).append(claim.devices.get(uuid, DeviceUse()))
    return tuple(
        CardUse(card, _given(shares.get(card.uuid, ()), uses.get(card.uuid, ()))) for card in cards
    )


def _given(shares: Sequence[Share], uses: Sequence[DeviceUse]) -> Given:
    return Given(
        allocated=sum((share.amounts for share in shares), Amounts()),
        shares=len(shares),
        unlimited=sum(share.amounts.cores == 0 for share in shares),
        held=_sum(uses).held,
    )


Position: TypeAlias = Callable[[str], int]
"""Return the place of a card, by its UUID, in the order in which CUDA numbers cards."""


def container_uses(
    containers: Sequence[Container], claims: Sequence[ClaimUse], position: Position
) -> tuple[tuple[ContainerUse, ...], int]:
    """Join containers with their claims; return them, and how many claims nobody has."""
    by_name: dict[tuple[str, str], list[ClaimUse]] = {}
    for use in claims:
        record = use.claim.record
        by_name.setdefault((record.namespace, record.name), []).append(use)
    named = set[str]()
    found: list[ContainerUse] = []
    for container in containers:
        # A kubelet may list a claim for each request, or entry, by which a container has it.
        held = {
            use.claim.record.uid: use for claim in container.claims for use in _of(claim, by_name)
        }
        named.update(held)
        found.extend(_of_container(container, tuple(held.values()), position))
    return tuple(found), sum(use.claim.record.uid not in named for use in claims)


def _of(
    held: HeldClaim, by_name: Mapping[tuple[str, str], Sequence[ClaimUse]]
) -> Iterator[ClaimUse]:
    """Yield the claim that a container has, and not one of the same name that was before it."""
    devices = {(each.pool, each.device, each.share_id) for each in held.devices}
    loosely = {(each.pool, each.device) for each in held.devices if each.share_id is None}
    for use in by_name.get((held.namespace, held.name), ()):
        if any(
            (share.pool, share.device, share.share_id) in devices
            # A kubelet before 1.35 does not tell the share.
            or (share.pool, share.device) in loosely
            for share in use.claim.record.shares
        ):
            yield use


def _of_container(
    container: Container, held: Sequence[ClaimUse], position: Position
) -> Iterator[ContainerUse]:
    amounts: dict[str, Amounts] = {}
    uses: dict[str, list[DeviceUse]] = {}
    for claim in held:
        for uuid, allocated in claim.allocated().items():
            amounts[uuid] = amounts.get(uuid, Amounts()) + allocated
            uses.setdefault(uuid, []).append(claim.devices.get(uuid, DeviceUse()))
    for number, uuid in enumerate(_numbered(amounts, held, position)):
        yield ContainerUse(container, number, uuid, amounts[uuid], _sum(uses[uuid]))


def _numbered(
    amounts: Mapping[str, Amounts], held: Sequence[ClaimUse], position: Position
) -> Sequence[str]:
    """Return the cards of a container in CUDA's order: one claim's are in it since it was made."""
    if len(held) == 1 and held[0].devices.keys() == amounts.keys():
        return tuple(held[0].devices)
    return sorted(amounts, key=lambda uuid: (position(uuid), uuid))


def _sum(uses: Sequence[DeviceUse]) -> DeviceUse:
    """Add up what claims do on one card; what one does not tell, none does."""
    limits = [use.limit_bytes for use in uses if use.limit_bytes is not None]
    holds = [use.held for use in uses if use.held is not None]
    percents = [use.percent for use in uses if use.percent is not None]
    counts = [use.counted for use in uses if use.counted is not None]
    return DeviceUse(
        limit_bytes=sum(limits) if len(limits) == len(uses) else None,
        held=Held(
            sum(held.buffer_bytes for held in holds),
            sum(held.context_bytes for held in holds),
            sum(held.processes for held in holds),
        )
        if len(holds) == len(uses)
        else None,
        percent=sum(percents) if len(percents) == len(uses) else None,
        counted=Counted(
            sum(counted.refusals for counted in counts),
            sum(counted.throttled_ns for counted in counts),
        )
        if len(counts) == len(uses)
        else None,
    )
