"""Forget claims whose unprepare never came, as when a kubelet lost its own memory.

A claim is given up only when the API server says twice, a minute apart, that it is gone or holds
nothing of this node any more; while the API server is away nothing is given up.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.migration import Json
from hami_dra.node.allocation import PrepareError
from hami_dra.node.record import Record

PERIOD_S: Final = 300.0
CONFIRM_S: Final = 60.0

_log = logging.getLogger(__name__)

FindClaim = Callable[[Record], Awaitable[Json | None]]


class Machine(Protocol):
    """What is needed of the claim machine."""

    def records(self) -> Mapping[str, Record]:
        """Return what is remembered."""

    def unprepare(self, uid: str) -> None:
        """Have nothing of a claim."""


class Reconciler:
    """Compares what is remembered with what the API server has.

    Args:
        machine: remembers claims.
        find: reads a claim from the API server.
        period_s: between two comparisons.
        confirm_s: between the two answers that it takes.
    """

    def __init__(
        self,
        machine: Machine,
        find: FindClaim,
        *,
        period_s: float = PERIOD_S,
        confirm_s: float = CONFIRM_S,
    ) -> None:
        self._machine = machine
        self._find = find
        self._period_s = period_s
        self._confirm_s = confirm_s

    async def run(self) -> None:
        """Compare now and then until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(self._period_s)

    async def once(self) -> tuple[str, ...]:
        """Compare once; return the claims that were given up."""
        suspects = [
            record for record in self._machine.records().values() if await self._gone(record)
        ]
        if not suspects:
            return ()
        await asyncio.sleep(self._confirm_s)
        known = self._machine.records()
        given_up = [
            record
            for record in suspects
            if known.get(record.uid) == record and await self._gone(record)
        ]
        return tuple([record.title for record in given_up if await self._give_up(record)])

    async def _give_up(self, record: Record) -> bool:
        named: dict[str, object] = {"namespace": record.namespace, "claim": record.name}
        try:
            await asyncio.to_thread(self._machine.unprepare, record.uid)
        except (OSError, PrepareError) as error:
            _log.warning(
                "claim not given up, tried again later", extra={"fields": {**named, "error": error}}
            )
            return False
        _log.warning(
            "claim given up: the API server does not have it, and no unprepare came",
            extra={"fields": named},
        )
        return True

    async def _gone(self, record: Record) -> bool:
        try:
            found = await self._find(record)
        except (ApiError, UnreachableError) as error:
            _log.info("claim %s not looked up: %s", record.title, error)
            return False
        return found is None or not _is_here(found, record)


def _is_here(claim: Json, record: Record) -> bool:
    """Tell whether a claim still holds something of this node.

    One that outlives its pods is allocated anew, and to another node as well as to this one.
    """
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    pools = {share.pool for share in record.shares}
    return any(result.get("pool") in pools for result in results)
