"""Hold the claims of a namespace to its legacy quotas, also when replicas admit them at once.

A namespace without such a quota costs nothing: it is known from a watch that there is none.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import WatchCache
from hami_dra.kube.errors import UnreachableError
from hami_dra.kube.ledgers import Ledgers, Stored
from hami_dra.kube.session import Session
from hami_dra.migration import Json, Policy, RejectedPod
from hami_dra.quota import (
    Asked,
    Claimed,
    Known,
    Ledger,
    Limit,
    Quota,
    Sizes,
    View,
    admit,
    exceeded,
    read_claim,
    read_quota,
    settle,
)
from hami_dra.quota.amounts import Amounts

OVERDUE_S: Final = 90.0
"""Half as much again as the API server's own limit for a request, which is 60 s."""

_RESOURCES: Final = "/apis/resource.k8s.io/v1"
_PATIENCE_S: Final = 0.5  # for a watch that lags; then the claims are read
_DEADLINE_S: Final = 4.0  # below the registration's timeout, so that the caller learns the reason

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Figure:
    """How a namespace stands with one key of a quota; `used` is None where it cannot be told."""

    quota: Quota
    limit: Limit
    used: int | None


class ClusterQuotas:
    """The quotas of a cluster, and what its claims take.

    Args:
        session: the API server.
        policy: names the resources and DeviceClasses that count.
        sizes: returns the size of the largest card of each driver.
        home: the namespace for the ledgers.
        overdue_s: see `Ledgers`.
        backoff: makes what says how long to wait after each failure.
    """

    def __init__(
        self,
        session: Session,
        policy: Policy,
        *,
        sizes: Callable[[], Sizes],
        home: str,
        overdue_s: float = OVERDUE_S,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        self._session = session
        self._policy = policy
        self._sizes = sizes
        self._quotas: WatchCache[Quota | None] = WatchCache(
            session,
            "/api/v1/resourcequotas",
            project=lambda item: read_quota(item, policy),
            backoff=backoff(),
        )
        self._claims: WatchCache[Known] = WatchCache(
            session,
            f"{_RESOURCES}/resourceclaims",
            project=self._known,
            changed=self._look,
            backoff=backoff(),
        )
        self._ledgers = Ledgers(
            session, home, overdue_s=overdue_s, changed=self._look_for, backoff=backoff()
        )
        self._news = asyncio.Event()
        self._hidden: dict[str, Ledger] = {}
        self._shown: dict[str, dict[str, int]] = {}
        self._since: dict[str, dict[str, int]] = {}
        self._waiting: dict[str, list[tuple[Asked, asyncio.Future[str]]]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    @property
    def is_synced(self) -> bool:
        """Tell whether all that a verdict needs was read once."""
        return all(each.is_synced for each in (self._quotas, self._claims, self._ledgers))

    async def run(self) -> None:
        """Keep the caches current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for each in (self._quotas, self._claims, self._ledgers):
                tasks.create_task(each.run())

    def of(self, namespace: str) -> tuple[Quota, ...]:
        """Return the quotas of a namespace that concern converted pods."""
        found = self._quotas.within(namespace)
        return tuple(each for each in found if each is not None) if found else ()

    def refusal(self, namespace: str, asked: Amounts) -> str:
        """Say why what is asked does not fit now, as far as the caches know; empty if it fits."""
        quotas = self.of(namespace)
        return exceeded(quotas, self._used(namespace), asked) if quotas else ""

    def sizes(self) -> Sizes:
        """Return the size of the largest card of each driver."""
        return self._sizes()

    def figures(self) -> Iterator[Figure]:
        """Yield how each namespace with a quota stands."""
        used: dict[str, Amounts] = {}
        for quota in filter(None, self._quotas.values()):
            for limit in quota.limits:
                if quota.namespace not in used:
                    used[quota.namespace] = self._used(quota.namespace)
                amount = used[quota.namespace].get(limit.meaning.resource, 0)
                yield Figure(quota, limit, amount)

    async def reserve(self, namespace: str, asked: Asked) -> str:
        """Reserve what a claim asks for; return why it does not fit, or an empty text.

        Claims that come together are decided together: each waits for its turn, and who gets it
        takes all that are waiting along in one write.

        Raises:
            ApiError: if the API server refuses the reservation.
            UnreachableError: if it does not answer, or others were faster all the time.
        """
        if not self.of(namespace):
            return ""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, []).append((asked, answer))
        async with self._turns.setdefault(namespace, asyncio.Lock()):
            if not answer.done():
                await self._take_turn(namespace)
        return answer.result()

    async def _take_turn(self, namespace: str) -> None:
        """Decide on all claims of a namespace that are waiting."""
        waiting = self._waiting.pop(namespace)
        try:
            async with asyncio.timeout(_DEADLINE_S):
                answers = await self._decide(namespace, [asked for asked, _ in waiting])
        except BaseException as error:
            told = error if isinstance(error, Exception) else UnreachableError("interrupted")
            if isinstance(error, TimeoutError):
                told = UnreachableError(f"quota of {namespace}: others were faster all the time")
            for _, answer in waiting:
                answer.set_exception(told)
                answer.exception()  # taken here, because whoever waited may be gone
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), text in zip(waiting, answers, strict=True):
            answer.set_result(text)

    async def _decide(self, namespace: str, asked: Sequence[Asked]) -> list[str]:
        """Read, decide and write, until nobody else wrote in between."""
        pause = Backoff(initial_s=0.005, limit_s=0.1)
        found = self._ledgers.cached(namespace)
        while True:
            quotas = self.of(namespace)
            before = (found and found.ledger) or Ledger()
            cached = self._cached(namespace)
            # What has shown itself is taken out without a look at the claims.
            unseen = before.reserved.keys() - cached.shown.keys()
            overdue = unseen & self._ledgers.overdue(namespace)
            # Caches may miss claims but make none up, so who does not fit by them does not fit.
            _, answers = admit(before, cached, quotas, asked)
            if all(answers) and not overdue:
                return answers
            view = await self._view(namespace, quotas, found, overdue=bool(overdue))
            settled = settle(before, view, overdue)
            after, answers = admit(settled, view, quotas, asked)
            if after.reserved.keys() == settled.reserved.keys() and not overdue:
                return answers  # nothing to write: all were refused or are known
            if await self._ledgers.write(namespace, found, after):
                return answers
            await pause.wait()
            found = await self._ledgers.read(namespace)

    async def _view(
        self, namespace: str, quotas: Sequence[Quota], found: Stored | None, *, overdue: bool
    ) -> View:
        """Return what is known of the claims; read them where the cache cannot be enough.

        It cannot before the first decision for a quota, since claims needed no ledger until then,
        nor without a ledger, nor while it lags behind what the ledger supposes.
        """
        since = self._since.get(namespace, {})
        is_new = any(quota.uid not in since for quota in quotas)
        if not (found is None or found.ledger is None or is_new or overdue):
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    while not (view := self._cached(namespace)).suffices(found.ledger, since):
                        await self._news.wait()
                    return view
        view = await self._read(namespace)
        self._since[namespace] = {quota.uid: view.newest for quota in quotas}
        return view

    async def _read(self, namespace: str) -> View:
        """Read the claims as they are now."""
        path = f"{_RESOURCES}/namespaces/{namespace}/resourceclaims"
        found = await self._session.get(path)
        claims = [self._known(item) for item in found.get("items") or ()]
        gone = self._shown.get(namespace)
        return View.of(claims, self._sizes(), version=0, gone=gone, is_live=True)

    def _known(self, item: Json) -> Known:
        """Read a stored claim; one of a form that we do not know must not stop all others."""
        try:
            return read_claim(item, self._policy)
        except RejectedPod as unknown:
            metadata = item["metadata"]
            _log.error("a claim is not counted: %s: %s", metadata["name"], unknown)
            return Known(metadata["uid"], metadata["name"], 0, Claimed())

    def _cached(self, namespace: str) -> View:
        return View.of(
            self._claims.within(namespace),
            self._sizes(),
            version=self._claims.version,
            gone=self._shown.get(namespace),
        )

    def _used(self, namespace: str) -> Amounts:
        """Return what the namespace takes, with what is admitted and not shown yet.

        What is overdue is left out: it is given back when the next claim is decided, and while it
        kept pods out, no claim would come.
        """
        stored = self._ledgers.cached(namespace)
        ledger = (stored and stored.ledger) or Ledger()
        overdue = self._ledgers.overdue(namespace)
        expected = {uid: one for uid, one in ledger.reserved.items() if uid not in overdue}
        return self._cached(namespace).used_with(Ledger(ledger.through, expected))

    def _look_for(self) -> None:
        """Take in which reserved claims have not shown themselves yet."""
        ledgers = self._ledgers.reserved()
        self._shown = {
            namespace: {uid: marks[uid] for uid in ledgers[namespace].reserved if uid in marks}
            for namespace, marks in self._shown.items()
            if namespace in ledgers
        }
        self._hidden = {namespace: each for namespace, each in ledgers.items() if each.reserved}
        self._look()

    def _look(self) -> None:
        """Mark which reserved claims have shown themselves, before they can be gone again."""
        for namespace, ledger in tuple(self._hidden.items()):
            marks = self._shown.setdefault(namespace, {})
            for uid, one in ledger.reserved.items():
                known = self._claims.get(namespace, one.name)
                if known is not None and known.uid == uid:
                    marks.setdefault(uid, known.version)
            if len(marks) == len(ledger.reserved):
                del self._hidden[namespace]
        self._news.set()
        self._news = asyncio.Event()
