"""What a namespace's pods and claims have come to, by two watches, for many waiters at one time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from hami_dra.kube.cache import WatchCache
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from hami_dra.migration.quantity import parse

T = TypeVar("T")

_LONGEST_WAIT_S: Final = 120
_PATIENCE_S: Final = 30
_COALESCED_S: Final = 0.03
_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Given:
    """What a claim was given of one device.

    Attributes:
        device: its name.
        memory_mib: memory, in MiB.
        cores: compute, in percent.
        slots: places for tenants, in hundredths of the card.
    """

    device: str
    memory_mib: int
    cores: int
    slots: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that was made from a template for a pod.

    Attributes:
        pod: whose it is.
        entry: which of the pod's claim entries it stands for.
        given: what was allocated; None before that.
    """

    pod: str
    entry: str
    given: tuple[Given, ...] | None


@dataclass(frozen=True, slots=True)
class Pod:
    """What the scheduler decided.

    Attributes:
        node: where the pod is bound; empty before that.
        refusal: why no node is good for it; empty when not tried or bound.
    """

    node: str
    refusal: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the scheduler decided on a pod.

    Attributes:
        claims: the pod's claims, allocated; None where no node is good for it.
        is_forgotten: whether it waits for claims that exist. Kubernetes 1.36.3 sometimes misses
            the creation of a claim, and tries the pod again only after minutes.
    """

    claims: tuple[Claim, ...] | None
    is_forgotten: bool = False


class Ledger:
    """The pods and claims of one namespace."""

    def __init__(self, session: Session, namespace: str) -> None:
        self._namespace = namespace
        self._changed = asyncio.Event()
        self._due = False
        self._by_pod: dict[str, list[Claim]] | None = None
        self._pods: WatchCache[Pod] = WatchCache(
            session, f"/api/v1/namespaces/{namespace}/pods", project=_pod, changed=self._note
        )
        self._claims: WatchCache[Claim] = WatchCache(
            session,
            f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims",
            project=_claim,
            changed=self._note,
        )

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Keep the ledger current inside the block."""
        tasks = [asyncio.create_task(cache.run()) for cache in (self._pods, self._claims)]
        try:
            await asyncio.gather(self._pods.synced(), self._claims.synced())
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def verdict(self, pod: str, claims: int) -> Verdict:
        """Wait until the scheduler has decided on a pod with so many claims, or forgotten it."""

        def decided() -> Verdict | None:
            seen, held = self._pods.get(self._namespace, pod), self._claims_of(pod)
            if seen is None or len(held) != claims:
                return None
            if seen.node and all(claim.given is not None for claim in held):
                return Verdict(held)
            # Other reasons mean that the scheduler has not seen all yet, and will try again.
            return Verdict(None) if "cannot allocate all claims" in seen.refusal else None

        def is_forgotten() -> bool:
            seen = self._pods.get(self._namespace, pod)
            return seen is not None and "ResourceClaim not created yet" in seen.refusal

        try:
            return await self._until(decided, f"{pod} is bound or refused", within_s=_PATIENCE_S)
        except TimeoutError:
            if is_forgotten():
                return Verdict(None, is_forgotten=True)
            return await self._until(decided, f"{pod} is bound or refused", of=pod)

    async def bound(self, pod: str) -> None:
        """Wait until a pod is bound, however often it is refused before."""

        def has_node() -> str | None:
            seen = self._pods.get(self._namespace, pod)
            return seen.node if seen and seen.node else None

        await self._until(has_node, f"{pod} is bound", of=pod)

    async def released(self, pod: str) -> None:
        """Wait until nothing is left that a pod held."""
        await self._until(lambda: not self._claims_of(pod) or None, f"{pod} holds nothing", of=pod)

    async def emptied(self) -> None:
        """Wait until no pod and no claim is left."""
        await self._until(
            lambda: not (self._pods.values() or self._claims.values()) or None, "all is gone"
        )

    def _claims_of(self, pod: str) -> tuple[Claim, ...]:
        if self._by_pod is None:
            self._by_pod = {}
            for claim in self._claims.values():
                self._by_pod.setdefault(claim.pod, []).append(claim)
        return tuple(self._by_pod.get(pod, ()))

    async def _until(
        self,
        condition: Callable[[], T | None],
        what: str,
        *,
        of: str = "",
        within_s: float = _LONGEST_WAIT_S,
    ) -> T:
        try:
            async with asyncio.timeout(within_s):
                while (value := condition()) is None:
                    await self._changed.wait()
        except TimeoutError as error:
            last = self._pods.get(self._namespace, of), self._claims_of(of)
            raise TimeoutError(f"waited {within_s} s until {what}; last: {last}") from error
        return value

    def _note(self) -> None:
        """Tell the waiters soon: a hundred of them look once for many events, not at each."""
        self._by_pod = None
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_COALESCED_S, self._wake)

    def _wake(self) -> None:
        self._due = False
        self._changed.set()
        self._changed = asyncio.Event()


def _pod(item: Json) -> Pod:
    conditions = item.get("status", {}).get("conditions", ())
    refusals = [
        condition.get("message", "")
        for condition in conditions
        if (condition["type"], condition.get("reason")) == ("PodScheduled", "Unschedulable")
    ]
    return Pod(node=item["spec"].get("nodeName", ""), refusal="".join(refusals))


def _claim(item: Json) -> Claim:
    allocation = item.get("status", {}).get("allocation")
    metadata = item["metadata"]
    [owner] = metadata["ownerReferences"]
    return Claim(
        pod=owner["name"],
        entry=metadata["annotations"][_ENTRY],
        given=allocation and tuple(map(_given, allocation["devices"]["results"])),
    )


def _given(result: Json) -> Given:
    consumed = {name: parse(text) for name, text in result["consumedCapacity"].items()}
    return Given(
        device=result["device"],
        memory_mib=consumed["memory"].integer // _MIB,
        cores=consumed["cores"].integer,
        slots=consumed["slots"].integer,
    )
