"""Answer the kubelet's DRA calls: read the claim once, then let the claim machine work.

A repeated prepare costs no API call (ruling 38); the first costs one, with a client that nobody
throttles. Blocking work happens in a thread, so that the kubelet's one-second questions are
answered while the disk is slow.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.migration import Json
from hami_dra.node import cdi
from hami_dra.node.allocation import PrepareError
from hami_dra.node.messages import ClaimReference, Prepared, PreparedDevice
from hami_dra.node.metrics import Metrics, Outcome
from hami_dra.node.share import Share
from hami_dra.node.work import Done, Job, Take, Work, Worker

FindClaim = Callable[[ClaimReference], Awaitable[Json | None]]
"""Read a claim; None if it is gone or another one has its name."""

# A call that the kubelet has given up must not commit after the unprepare that may follow it.
_LEAST_TIME_S: Final = 1.0

_log = logging.getLogger(__name__)


class Machine(Protocol):
    """What the plugin needs of the claim machine."""

    def knows(self, uid: str) -> bool:
        """Tell whether a claim is remembered."""

    def standing(self, uid: str) -> tuple[Share, ...] | None:
        """Return what a prepared claim holds if nothing has to be done for it; never waits."""

    def together(self, take: Take) -> None:
        """Do jobs of this machine side by side, and those that come meanwhile."""

    def repeating(self, uid: str) -> Work[tuple[Share, ...] | None]:
        """Return what a prepared claim holds, or None."""

    def preparing(self, claim: Json) -> Work[tuple[Share, ...]]:
        """Prepare a claim."""

    def unpreparing(self, uid: str) -> Work[None]:
        """Have nothing of a claim."""


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
        self._worker = Worker(machine.together)

    async def prepare(
        self, claims: Sequence[ClaimReference], left_s: Callable[[], float | None]
    ) -> Mapping[str, Prepared]:
        """Prepare claims; every one gets an answer, because the kubelet insists.

        Args:
            claims: the claims.
            left_s: tells how long the kubelet still waits; None is for ever.
        """
        if len(claims) == 1:
            # The usual case, which needs no task of its own.
            return {claims[0].uid: await self._prepare(claims[0], left_s)}
        answers = await asyncio.gather(*(self._prepare(claim, left_s) for claim in claims))
        return {claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, str]:
        """Unprepare claims; the answers are errors, empty where it worked."""
        answers = await asyncio.gather(*(self._unprepare(claim) for claim in claims))
        return {claim.uid: answer for claim, answer in zip(claims, answers, strict=True)}

    def stuck(self, limit_s: float) -> str:
        """Return what hangs, for the liveness probe; called from another thread.

        Args:
            limit_s: how long work on claims may keep us waiting.
        """
        has_moved = threading.Event()

        def moved(_: Done) -> None:
            has_moved.set()

        try:
            self._worker.begin(Job(_nothing(), moved))
        except RuntimeError:
            return ""  # it is stopping
        # It moves even if it refuses; why is told elsewhere.
        return "" if has_moved.wait(limit_s) else f"work on claims has not moved for {limit_s:g} s"

    def close(self) -> None:
        """Wait for what is being done."""
        self._worker.close()

    async def _prepare(self, claim: ClaimReference, left_s: Callable[[], float | None]) -> Prepared:
        with self._metrics.call("prepare") as call:
            try:
                call.outcome = Outcome.REPEATED
                shares = self._machine.standing(claim.uid)
                if shares is None and self._machine.knows(claim.uid):
                    shares = await self._worker.done(self._machine.repeating(claim.uid))
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
        try:
            found = await self._find(claim)
        except (ApiError, UnreachableError):
            # Another agent of this node may have prepared it, which its checkpoint tells.
            shares = await self._worker.done(self._machine.repeating(claim.uid))
            if shares is None:
                raise
            return shares
        if found is None:
            raise PrepareError(
                f"the claim {claim.namespace}/{claim.name} with UID {claim.uid} does not exist"
            )
        left = left_s()
        if left is not None and left < _LEAST_TIME_S:
            raise PrepareError("reading the claim took too long; the kubelet tries again")
        return await self._worker.done(self._machine.preparing(found))

    async def _unprepare(self, claim: ClaimReference) -> str:
        with self._metrics.call("unprepare") as call:
            try:
                await self._worker.done(self._machine.unpreparing(claim.uid))
            except (PrepareError, OSError) as error:
                call.outcome = Outcome.FAILED
                text = _text(error)
                _log.warning("claim not unprepared", extra=_fields(claim, error=text))
                return text
        _log.info("claim unprepared", extra=_fields(claim))
        return ""


class Refusing:
    """Stands in for a machine that must not touch anything; tells why.

    Args:
        why: the sentence for the events of pods.
    """

    def __init__(self, why: str) -> None:
        self._why = why

    def knows(self, uid: str) -> bool:  # noqa: ARG002 - the protocol's
        """Say yes: nobody has to be asked about what is refused."""
        return True

    def standing(self, uid: str) -> tuple[Share, ...] | None:  # noqa: ARG002 - the protocol's
        """Know of nothing."""
        return None

    def together(self, take: Take) -> None:  # noqa: ARG002 - the protocol's
        """Refuse."""
        raise PrepareError(self._why)

    def repeating(self, uid: str) -> Work[tuple[Share, ...] | None]:  # noqa: ARG002 - the protocol's
        """Do nothing; nothing is done anyway."""
        return _nothing()

    def preparing(self, claim: Json) -> Work[tuple[Share, ...]]:  # noqa: ARG002 - the protocol's
        """Do nothing; nothing is done anyway."""
        yield from ()
        return ()

    def unpreparing(self, uid: str) -> Work[None]:  # noqa: ARG002 - the protocol's
        """Do nothing; nothing is done anyway."""
        return _nothing()


def _nothing() -> Work[None]:
    yield from ()


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
