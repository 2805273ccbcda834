"""From the creation of pods to their being scheduled: legacy pods against pods written for DRA.

Both run on one control plane with the same template, so the difference is what the webhook costs.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.kube.session import Session
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.controlplane import CONTROLLER_MANAGER
from hami_dra.lab.wait import until
from hami_dra.migration import Cards, Json, Policy, migrate

NODES: Final = {f"node-{number}": {"a100-80g": 8} for number in range(3)}
"""Nodes with room for 240 pods of the kind that is created."""

_NAMESPACE: Final = "default"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_UNSCHEDULED: Final = {"fieldSelector": "spec.nodeName=", "limit": "1"}
_CLIENTS: Final = 16
_POLL_S: Final = 0.005  # grows tenfold at most
_TIMEOUT_S: Final = 180
_FLAGS: Final = ("--kube-api-qps", "--kube-api-burst")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the controller-manager's client is allowed.

    Attributes:
        qps: requests a second.
        burst: requests at once.
        pods: how many pods are created in a round.
    """

    qps: int
    burst: int
    pods: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found at some limits.

    Attributes:
        limits: of the controller-manager.
        legacy: pods a second through the webhook, of each round.
        by_hand: pods a second of those with claims, of each round.
    """

    limits: Limits
    legacy: list[float]
    by_hand: list[float]

    @property
    def ratio(self) -> float:
        """Return how fast legacy pods are, with pods written for DRA as 1."""
        return statistics.median(self.legacy) / statistics.median(self.by_hand)


def measure(
    cluster: Cluster, api: Api, limits: Limits, *, rounds: int, say: Callable[[str], None]
) -> Outcome:
    """Create both kinds of pods in turns at one setting of the controller-manager.

    A round before the first warms everything up and counts for nothing; who goes first changes.
    """
    _limit(cluster, limits)
    by_hand = _by_hand(api)
    found = Outcome(limits, [], [])
    turns = [
        ("through the webhook", _legacy(), found.legacy),
        ("written by hand", by_hand, found.by_hand),
    ]
    for _, pod, _ in turns:
        _rate(api, pod, limits.pods // 2)
        _clear(api)
    for number in range(1, rounds + 1):
        turns.reverse()
        for name, pod, rates in turns:
            rates.append(_rate(api, pod, limits.pods))
            say(
                f"round {number}/{rounds}  {limits.qps}/{limits.burst}  {name:<20}"
                f" {rates[-1]:6.1f} pods/s"
            )
            _clear(api)
    return found


def _legacy() -> Json:
    amounts = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "10"}
    container = {"name": "main", "image": "none", "resources": {"limits": amounts}}
    return {"metadata": {"generateName": "bench-"}, "spec": {"containers": [container]}}


def _by_hand(api: Api) -> Json:
    """Return the pod as one would write it for DRA, once its template is there."""
    [template] = migrate(_legacy(), Policy(kubernetes="1.37"), Cards()).templates
    if api.find("resourceclaimtemplates", template.name, namespace=_NAMESPACE) is None:
        api.create("resourceclaimtemplates", template.manifest(), namespace=_NAMESPACE)
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    entry = {"name": "gpu", "resourceClaimTemplateName": template.name}
    spec = {"containers": [container], "resourceClaims": [entry]}
    return {"metadata": {"generateName": "bench-"}, "spec": spec}


def _rate(api: Api, pod: Json, count: int) -> float:
    """Create pods as fast as the API server takes them; return how many a second get a node."""

    async def burst(session: Session) -> None:
        gate = asyncio.Semaphore(_CLIENTS)

        async def create() -> None:
            async with gate:
                await session.create(_PODS, pod)

        await asyncio.gather(*(create() for _ in range(count)))

    start = time.monotonic()
    api.run(burst)
    until(
        lambda: not api.list("pods", namespace=_NAMESPACE, query=_UNSCHEDULED),
        what="every pod has a node",
        timeout_s=_TIMEOUT_S,
        every_s=_POLL_S,
    )
    return count / (time.monotonic() - start)


def _clear(api: Api) -> None:
    """Delete the pods and wait until their claims are gone too."""
    api.delete_all("pods", _NAMESPACE)
    until(
        lambda: (
            not any(api.list(kind, namespace=_NAMESPACE) for kind in ("pods", "resourceclaims"))
        ),
        what="the pods and their claims are gone",
        timeout_s=_TIMEOUT_S,
    )


def _limit(cluster: Cluster, limits: Limits) -> None:
    """Start the controller-manager anew with other limits and all else as it was."""
    running = cluster.processes[CONTROLLER_MANAGER]
    argv = Path(f"/proc/{running.pid}/cmdline").read_text().rstrip("\0").split("\0")
    kept = [argument for argument in argv if not argument.startswith(_FLAGS)]
    amounts = zip(_FLAGS, (limits.qps, limits.burst), strict=True)
    running.stop()
    name = f"{CONTROLLER_MANAGER}-{limits.qps}"
    call = [*kept, *(f"{flag}={amount}" for flag, amount in amounts)]
    cluster.processes = {
        **cluster.processes,
        CONTROLLER_MANAGER: cluster.start_process(name, call, grace_s=0),
    }
