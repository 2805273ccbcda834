"""Remove templates that nobody needs any more, now and then and without hurry (ruling 28).

Every replica does so without an election: all writes are bound to the state that was judged, and
whoever is late finds the work done.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from hami_dra.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from hami_dra.kube.removal import LATER_LOOKS_S, Effect, Remover
from hami_dra.kube.session import Session
from hami_dra.kube.survey import Judged, collection, judge_all, labelled
from hami_dra.kube.unused import DEFAULT_TTL, Action, Rule, mark
from hami_dra.migration.json import Json

PERIOD_S: Final = 3600.0
"""The longest time between two passes of one replica."""

# A shutdown waits for at most one batch.
_BATCH: Final = 20

_log = logging.getLogger(__name__)


class Sweeper:
    """Sweeps one cluster again and again.

    Written by: the task in `run` only.

    Args:
        session: the API server.
        ttl: how long a template stays unused before it goes.
        period_s: the longest time between two passes; the shortest is half of it.
        pause_s: between two namespaces, so that nobody notices a pass.
        later_looks_s: pauses before the further looks after a delete.
        clock: tells the present.
        chance: returns numbers in 0..1; replicas must differ, or they all begin at once.

    Attributes:
        trouble: what kept the last pass from its work, for a person; empty when nothing did.
        finished: when the last pass without trouble ended; None before.
    """

    def __init__(
        self,
        session: Session,
        *,
        ttl: timedelta = DEFAULT_TTL,
        period_s: float = PERIOD_S,
        pause_s: float = 0.1,
        later_looks_s: Iterable[float] = LATER_LOOKS_S,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.trouble = ""
        self.finished: datetime | None = None
        self._session = session
        self._remover = Remover(session, later_looks_s=later_looks_s)
        self._ttl = ttl
        self._period_s = period_s
        self._pause_s = pause_s
        self._clock = clock
        self._chance = chance

    @property
    def effects(self) -> Counter[Effect]:
        """What was done so far, by effect."""
        return self._remover.effects

    async def run(self) -> None:
        """Sweep until cancelled; the first pass comes at a random moment of the first period."""
        await asyncio.sleep(self._chance() * self._period_s)
        while True:
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001 - admissions must not end because of a sweep
                _log.exception("a pass of the sweeper failed")
                self.trouble = f"a pass failed: {error!r}"
            await asyncio.sleep(self._period_s * (1 - self._chance() / 2))

    async def sweep(self) -> None:
        """Look at every namespace once; trouble with one does not spare the others."""
        troubles: list[str] = []
        try:
            found = await labelled(self._session)
        except (ApiError, UnreachableError) as error:
            found = {}
            self._failed(f"could not list templates: {error}", troubles)
        for namespace, templates in sorted(found.items()):
            try:
                await self._sweep_one(namespace, templates)
            except (ApiError, UnreachableError) as error:
                self._failed(f"could not sweep templates of {namespace}: {error}", troubles)
            await asyncio.sleep(self._pause_s)
        await self._remover.look_later()
        self.trouble = "; ".join(troubles[:1])
        if not troubles:
            self.finished = self._clock()

    async def _sweep_one(self, namespace: str, templates: list[Json]) -> None:
        rule = Rule(self._clock(), self._ttl)
        judged = await judge_all(self._session, namespace, templates, rule)
        for each in judged:
            if each.judgement.action in (Action.MARK, Action.UNMARK):
                self.effects[await self._record(each)] += 1
        doomed = [each for each in judged if each.judgement.action is Action.SWEEP]
        for start in range(0, len(doomed), _BATCH):
            effects = await self._remover.remove(namespace, doomed[start : start + _BATCH])
            for name, effect in effects.items():
                _log.info("unused template %s/%s: %s", namespace, name, effect)

    async def _record(self, judged: Judged) -> Effect:
        """Write down on the template what was seen."""
        marks = judged.judgement.action is Action.MARK
        path = f"{collection(judged.namespace)}/{judged.name}"
        since = judged.judgement.since if marks else None
        try:
            await self._session.patch(path, mark(judged.template, since))
        except (ConflictError, NotFoundError):
            return Effect.OVERTAKEN
        return Effect.MARKED if marks else Effect.UNMARKED

    def _failed(self, trouble: str, troubles: list[str]) -> None:
        """Tell each trouble once, however often it is met."""
        if trouble != self.trouble:
            _log.warning("%s", trouble)
        self.effects[Effect.FAILED] += 1
        troubles.append(trouble)
