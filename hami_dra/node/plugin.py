"""Answer the kubelet's DRA calls: read the claim once, then let the claim machine work.

A repeated prepare costs no API call (ruling 38); the first costs one, with a client that nobody
throttles. Blocking work happens in threads, so that the kubelet's one-second questions are
answered while the disk is slow.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.migration import Json
from hami_dra.node import cdi
from hami_dra.node.allocation import PrepareError
from hami_dra.node.messages import ClaimReference, Prepared, PreparedDevice
from hami_dra.node.metrics import Metrics, Outcome
from hami_dra.node.share import Share

T = TypeVar("T")

FindClaim = Callable[[ClaimReference], Awaitable[Json | None]]
"""Read a claim; None if it is gone or another one has its name."""

_THREADS: Final = 8
# A call that the kubelet has given up must not commit after the unprepare that may follow it.
_LEAST_TIME_S: Final = 1.0

_log = logging.getLogger(__name__)


class Machine(Protocol):
    """What the plugin needs of the claim machine."""

    def repeat(self, uid: str) -> tuple[Share, ...] | None:
        """Return what a prepared claim holds, or None."""

    def prepare(self, claim: Json) -> tuple[Share, ...]:
        """Prepare a claim."""

    def unprepare(self, uid: str) -> None:
        """Have nothing of a claim."""

    def alive(self) -> None:
        """Return unless something hangs."""


class Plugin:
    """The handlers of both versions of the DRA service.

    Args:
        machine: prepares claims.
        find: reads a claim from the API server.
        metrics: counts.
    """

    def __init__(self, machine: Machine, find: FindClaim, metrics: Metrics) -> None:
        self._machine = machine
        self._find = find
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="claims")

    async def prepare(
        self, claims: Sequence[ClaimReference], left_s: Callable[[], float | None]
    ) -> Mapping[str, Prepared]:
        """Prepare claims; every one gets an answer, because the kubelet insists.

        Args:
            claims: the claims.
            left_s: tells how long the kubelet still waits; None is for ever.
        """
        answers = await asyncio.gather(*(self._prepare(claim, left_s) for claim in claims))
        return {claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        """Unprepare claims; the answers are errors, empty where it worked."""
        answers = await asyncio.gather(*(self._unprepare(claim) for claim in claims))
        return {claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}

    def stuck(self, limit_s: float) -> str:
        """Return what hangs, for the liveness probe; called from another thread.

        Args:
            limit_s: how long a thread for claims may keep us waiting.
        """
        try:
            self._threads.submit(self._machine.alive).result(limit_s)
        except TimeoutError:
            return f"work on claims has not moved for {limit_s:g} s"
        except RuntimeError:
            return ""  # it is shutting down
        return ""

    def close(self) -> None:
        """Wait for what is being done."""
        self._threads.shutdown(wait=True)

    async def _prepare(self, claim: ClaimReference, left_s: Callable[[], float | None]) -> Prepared:
        with self._metrics.call("prepare") as call:
            try:
                shares = await self._in_thread(lambda: self._machine.repeat(claim.uid))
                call.outcome = Outcome.REPEATED
                if shares is None:
                    call.outcome = Outcome.DONE
                    shares = await self._prepare_anew(claim, left_s)
            except (PrepareError, ApiError, UnreachableError, OSError) as error:
                call.outcome = Outcome.FAILED
                text = _text(error)
                _log.warning("claim not prepared", extra=_fields(claim, error=text))
                return Prepared(error=text)
        _log.info("claim prepared", extra=_fields(claim, outcome=call.outcome))
        return Prepared(tuple(_device(claim.uid, share) for share in shares))

    async def _prepare_anew(
        self, claim: ClaimReference, left_s: Callable[[], float | None]
    ) -> tuple[Share, ...]:
        found = await self._find(claim)
        if found is None:
            raise PrepareError(
                f"the claim {claim.namespace}/{claim.name} with UID {claim.uid} does not exist"
            )
        left = left_s()
        if left is not None and left < _LEAST_TIME_S:
            raise PrepareError("reading the claim took too long; the kubelet tries again")
        return await self._in_thread(lambda: self._machine.prepare(found))

    async def _unprepare(self, claim: ClaimReference) -> str:
        with self._metrics.call("unprepare") as call:
            try:
                await self._in_thread(lambda: self._machine.unprepare(claim.uid))
            except (PrepareError, OSError) as error:
                call.outcome = Outcome.FAILED
                text = _text(error)
                _log.warning("claim not unprepared", extra=_fields(claim, error=text))
                return text
        _log.info("claim unprepared", extra=_fields(claim))
        return ""

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


class Refusing:
    """Stands in for a machine that must not touch anything; tells why.

    Args:
        why: the sentence for the events of pods.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def repeat(self, uid: str) -> tuple[Share, ...] | None:  # noqa: ARG002 - the protocol's
        """Refuse."""
        raise PrepareError(self._why)

    def prepare(self, claim: Json) -> tuple[Share, ...]:  # noqa: ARG002 - the protocol's
        """Refuse."""
        raise PrepareError(self._why)

    def unprepare(self, uid: str) -> None:  # noqa: ARG002 - the protocol's
        """Refuse."""
        raise PrepareError(self._why)

    def alive(self) -> None:
        """Hang never."""


def _device(uid: str, share: Share) -> PreparedDevice:
    return PreparedDevice(
        requests=(share.request,),
        pool=share.pool,
        device=share.device,
        cdi_ids=(cdi.device_id(uid, share),),
        share_id=share.share_id,
    )


def _text(error: Exception) -> str:
    if isinstance(error, ApiError | UnreachableError):
        return f"the claim could not be read from the API server: {error}"
    return str(error)


def _fields(claim: ClaimReference, **more: object) -> dict[str, object]:
    named = {"namespace": claim.namespace, "claim": claim.name, "uid": claim.uid}
    return {"fields": {**named, **more}}
