"""Play recorded situations on a real scheduler and compare every step with what legacy did.

Which card is taken is preference: what a container holds is compared on the card that it got. After
each step that went another way, pods that hold what legacy's books say take its place, so that
every step starts from what legacy started from.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import jsonpatch

from hami_dra.migration import Cards, Json, Policy, RejectedPod, migrate
from hami_dra.node.devices import device_name
from tests.e2e.ledger import Claim
from tests.e2e.situations import TENANTS, Books, Share, Situation
from tests.e2e.stage import Stage
from tests.oracle import pod_of, policy_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the pod of one step; a step without one leaves all as it stands here.

    Attributes:
        rejected: why `migrate` rejects it; empty when it does not.
        shares: what each container holds, by name; None when the pod has no place.
        held: what the pod holds, claim by claim.
    """

    rejected: str = ""
    shares: Mapping[str, tuple[Share, ...]] | None = None
    held: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """A step that was played.

    Attributes:
        situation: whose step.
        number: which.
        outcome: what became of its pod.
    """

    situation: Situation
    number: int
    outcome: Outcome

    @property
    def step(self) -> Json:
        """What the oracle has of it."""
        return self.situation.steps[self.number]


@dataclass(slots=True)
class _Play:
    """One situation being played.

    Attributes:
        held: which pod stands for the pod of a step, and what it holds.
    """

    stage: Stage
    situation: Situation
    policy: Policy
    held: dict[int, tuple[str, tuple[Share, ...]]] = field(default_factory=dict)
    made: int = 0

    async def run(self) -> list[Played]:
        played = []
        await self._settle({TENANTS: self.situation.tenants})
        for number, books in enumerate(self.situation.books()):
            played.append(Played(self.situation, number, await self._step(number)))
            if any(later["op"] == "pod" for later in self.situation.steps[number + 1 :]):
                await self._settle(books)
        for name, _ in self.held.values():
            await self.stage.remove(name)
        return played

    async def _step(self, number: int) -> Outcome:
        step = self.situation.steps[number]
        if step["op"] == "pod":
            return await self._try(number, step["pod"])
        if step["op"] == "finish" and step["of"] in self.held:
            name, _ = self.held.pop(step["of"])
            await self.stage.finish(name)
        return Outcome()

    async def _try(self, number: int, case: Json) -> Outcome:
        """Create a step's pod, and take it away again if it has no place."""
        name = self._new_name()
        pod = pod_of(case, name)
        sizes = frozenset(card["mem"] for card in self.situation.cards.values())
        try:
            migration = migrate(pod, self.policy, Cards(sizes))
        except RejectedPod as rejected:
            return Outcome(rejected=str(rejected))
        converted = jsonpatch.apply_patch(pod, migration.patch)
        claims = await self.stage.place(self.situation, converted, migration.templates)
        if claims is None:
            await self.stage.remove(name)
            return Outcome()
        shares = {claim.entry: self._shares(claim) for claim in claims}
        held = tuple(share for entry in shares.values() for share in entry)
        self.held[number] = (name, held)
        return Outcome(shares=_by_container(converted, shares), held=held)

    async def _settle(self, books: Books) -> None:
        """Have each pod hold what legacy's books say, by another one where it does not."""
        for of, shares in books.items():
            name, held = self.held.get(of, ("", ()))
            if _by_card(held) == _by_card(shares):
                continue
            if name:
                await self.stage.release(self.held.pop(of)[0])
            if shares:
                name = self._new_name()
                await self.stage.book(self.situation, name, shares)
                self.held[of] = (name, tuple(shares))

    def _shares(self, claim: Claim) -> tuple[Share, ...]:
        uuids = {device_name(uuid): uuid for uuid in self.situation.cards}
        return tuple(
            Share(uuids[given.device], given.memory_mib, given.cores, given.slots)
            for given in claim.given or ()
        )

    def _new_name(self) -> str:
        self.made += 1
        return f"{self.situation.name}-{self.made}"


async def play(
    stage: Stage, situations: Sequence[Situation], *, kubernetes: str, at_once: int
) -> list[Played]:
    """Play situations, so many at a time, each on a node of its own.

    Args:
        stage: where.
        situations: what.
        kubernetes: the cluster's version, `major.minor`.
        at_once: how many have a node at one time.
    """
    played: list[Played] = []
    for start in range(0, len(situations), at_once):
        batch = situations[start : start + at_once]
        plays = [
            _Play(stage, each, policy_of(each.case["config"], kubernetes=kubernetes))
            for each in batch
        ]
        async with stage.nodes(batch), asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in plays]
        played.extend(step for task in running for step in task.result())
    return played


def _by_container(
    pod: Json, shares: Mapping[str, tuple[Share, ...]]
) -> dict[str, tuple[Share, ...]]:
    spec = pod["spec"]
    return {
        container["name"]: tuple(
            share
            for claim in container["resources"].get("claims", ())
            for share in shares[claim["name"]]
        )
        for container in (*spec["initContainers"], *spec["containers"])
    }


def _by_card(shares: Iterable[Share]) -> dict[str, Counter[str]]:
    """Add up what is held of each card."""
    sums: dict[str, Counter[str]] = {}
    for share in shares:
        amounts = {"mib": share.memory_mib, "cores": share.cores, "slots": share.slots}
        sums.setdefault(share.uuid, Counter()).update(amounts)
    return sums
