"""Placement situations of the oracle as values: a node's cards, who is there, and what steps do.

Pure: what happens to them on a real scheduler is `tests.e2e.stage`.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hami_dra.migration import Json
from hami_dra.node.devices import WHOLE, resource_slice
from hami_dra.node.inventory import Card
from tests.e2e.cards import found
from tests.oracle import cases, is_early

TENANTS: Final = -1
"""Stands for those who are there before the first step, where a step's number is expected."""


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """What is held of one card.

    Attributes:
        uuid: the card.
        memory_mib: memory.
        cores: compute, in percent.
        slots: places for tenants, 100 for all of the card's.
    """

    uuid: str
    memory_mib: int
    cores: int
    slots: int


@dataclass(frozen=True, slots=True)
class Owed:
    """What a container of legacy gets, on whatever card it is.

    Attributes:
        early: whether it is an init container or a sidecar.
        count: how many different cards.
        cores: compute on each, in percent.
        memory_mib: memory, for each card that it could be, by UUID.
    """

    early: bool
    count: int
    cores: int
    memory_mib: Mapping[str, int]

    def is_met_by(self, shares: Collection[Share]) -> bool:
        """Tell whether a container holds what it is owed.

        An init container may use what an app container holds, which is as much or more (ruling 15).
        """
        given = [
            (share.memory_mib - self.memory_mib[share.uuid], share.cores - self.cores)
            for share in shares
        ]
        if len({share.uuid for share in shares}) != len(shares):
            return False
        if self.early and self.count:
            return len(given) >= self.count and all(min(more) >= 0 for more in given)
        return len(given) == self.count and all(more == (0, 0) for more in given)


Books = Mapping[int, tuple[Share, ...]]
"""What the pod of each step holds, one share a card; `TENANTS` are the first ones."""


@dataclass(frozen=True)
class Situation:
    """One node and what happens on it.

    Attributes:
        case: as the oracle has it.
    """

    case: Json

    @property
    def name(self) -> str:
        """The oracle's name for it, in lower case, which Kubernetes can use."""
        name: str = self.case["id"].lower()
        return name

    @property
    def steps(self) -> list[Json]:
        """What happens, in order."""
        steps: list[Json] = self.case["steps"]
        return steps

    @cached_property
    def cards(self) -> dict[str, Json]:
        """The node's cards by UUID."""
        return {card["uuid"]: card for card in self.case["cards"]}

    @cached_property
    def tenants(self) -> tuple[Share, ...]:
        """What those who are there before the first step hold, one share a card.

        Some of them share a card of which one has all cores, which only legacy's books allow.
        """
        return tuple(
            Share(
                uuid=card["uuid"],
                memory_mib=sum(memory for memory, _ in tenants),
                cores=sum(cores for _, cores in tenants),
                slots=self._slots(card, len(tenants), alone=tenants[0][1] == WHOLE),
            )
            for card in self.case["cards"]
            for tenants in [card.get("tenants", ())]
            if tenants
        )

    def used_up(self, number: int) -> set[str]:
        """Return the cards that had no free cores when a step began."""
        used = {share.uuid: share.cores for share in self.tenants}
        if number:
            after = self.steps[number - 1]["after"]
            used = {uuid: cores for uuid, (_, _, cores) in after.items()}
        return {uuid for uuid, cores in used.items() if cores >= self.cards[uuid]["cores"]}

    def books(self) -> Iterator[Books]:
        """Yield what each pod holds in legacy's books after each step."""
        held: dict[int, dict[str, list[int]]] = {}
        for number, step in enumerate(self.steps):
            books = held.setdefault(step.get("of", number), {})
            for uuid, change in step.get("booked", {}).items():
                before = books.get(uuid, [0, 0, 0])
                books[uuid] = [old + new for old, new in zip(before, change, strict=True)]
            yield {of: self._shares(of, cards) for of, cards in held.items()}

    def _shares(self, of: int, books: Mapping[str, list[int]]) -> tuple[Share, ...]:
        return tuple(
            Share(uuid, memory, cores, self._slots(self.cards[uuid], tenants, alone=alone))
            for uuid, (tenants, memory, cores) in sorted(books.items())
            if tenants
            for alone in [cores >= WHOLE and self._takes_all(of, uuid)]
        )

    def _takes_all(self, of: int, uuid: str) -> bool:
        """Tell whether a container of a step's pod has all cores of a card."""
        given = (share for container in self.steps[of]["alloc"] for share in container)
        return any((share["uuid"], share["cores"]) == (uuid, WHOLE) for share in given)

    def _slots(self, card: Json, tenants: int, *, alone: bool) -> int:
        """Return the slots of so many tenants; on a card with other cores nobody is ever alone."""
        if alone and tenants == 1 and card["cores"] == WHOLE:
            return WHOLE
        return tenants * (WHOLE // int(card["slots"]))


def read() -> list[Situation]:
    """Return every recorded situation."""
    return [Situation(case) for case in cases("placement")]


def obstacle(situation: Situation) -> str | None:
    """Name what keeps a situation from being played with cards as our driver publishes them."""
    for card in situation.cards.values():
        if card.get("mode", "hami-core") != "hami-core":
            return "MIG card"
        if card.get("unhealthy"):
            return "unhealthy card"
        if card.get("cordoned"):
            return "cordoned card"
    return None


def one_in(many: int, situations: list[Situation]) -> list[Situation]:
    """Choose one in so many of each group, the first included."""
    seen: dict[str, int] = {}
    chosen = []
    for situation in situations:
        group = situation.case["group"]
        if seen.setdefault(group, 0) % many == 0:
            chosen.append(situation)
        seen[group] += 1
    return chosen


def published(situation: Situation, *, node: str, node_uid: str, driver: str) -> Json:
    """Return the slice of a situation's node, in the form of our driver.

    Scaled cores, which our driver does not offer yet, are put in afterwards.
    """
    split_count, *_ = {int(card["slots"]) for card in situation.cards.values()}
    cards = [_card(card) for card in situation.cards.values()]
    made = resource_slice(
        cards, node=node, node_uid=node_uid, driver=driver, split_count=split_count
    )
    for device, card in zip(made["spec"]["devices"], situation.cards.values(), strict=True):
        cores = str(card["cores"])
        policy = {"default": cores, "validRange": {"min": "0", "max": cores, "step": "1"}}
        device["capacity"]["cores"] = {"value": cores, "requestPolicy": policy}
    return made


def owed(step: Json, situation: Situation) -> dict[str, Owed]:
    """Return what each container of a step's pod is owed, by its name."""
    return {
        container["name"]: Owed(
            early=is_early(container),
            count=max(asked["nums"], 0),
            cores=min(asked["cores"], WHOLE),
            memory_mib={
                uuid: asked["mem"] or card["mem"] * min(asked["pct"], WHOLE) // WHOLE
                for uuid, card in situation.cards.items()
            },
        )
        for container, asked in zip(step["pod"]["containers"], step["tuples"], strict=True)
    }


def _card(case: Json) -> Card:
    # Legacy put this before models that do not start with NVIDIA.
    return found(case["uuid"], case["type"].removeprefix("NVIDIA-"), case["mem"])
