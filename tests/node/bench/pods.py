"""What pods of a real node wait for, and whether they leave anything: needs root.

The same pods without a card, and with one of the Kubernetes example driver, tell what is the
node's own share of the time.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hami_dra.kube.session import Session
from hami_dra.lab.realnode import KUBELET
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.node.bed import NAMESPACE, Bed, a_bare_bed, at_work, container, pod
from tests.node.bench import programs

_TOGETHER = 40
_MOST = 110  # as many as a kubelet allows
_CARDS = 12
_LONG_S = 900.0
_CLAIM = "card"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def measure() -> None:
    """Start many pods at once, then as many as a node may have, and look what is left."""
    with a_bare_bed() as bed:
        _start_and_delete(bed, "without a card", _TOGETHER, _without_card)
        with _example_driver(bed):
            _start_and_delete(bed, "of the example driver", _TOGETHER, _with_claim)
        with at_work(bed, "--count", str(_CARDS)):
            for count in (_TOGETHER, _MOST):
                _start_and_delete(bed, "of legacy YAML", count, _legacy)
            _restart_kubelet(bed)


def _start_and_delete(bed: Bed, kind: str, count: int, make: Callable[[str], Json]) -> None:
    # The example driver keeps files of its own beside those of claims.
    before = len(bed.files())
    waits = sorted(_ready_after(bed, count, make).values())
    middle, last = waits[len(waits) // 2], waits[-1]
    title = f"{count} pods {kind}, to Ready"
    print(f"{title:<42} p50 {middle:5.1f} s   max {last:5.1f} s")
    started = time.perf_counter()
    bed.delete_pods()
    until(lambda: len(bed.files()) <= before, what="no file of a claim is left", timeout_s=_LONG_S)
    print(f"{'deleted again':<42} {time.perf_counter() - started:9.1f} s")
    claims = bed.api.list("resourceclaims", namespace=NAMESPACE)
    events = bed.api.list("events", namespace=NAMESPACE)
    refusals = sum(each["reason"] == "FailedPrepareDynamicResources" for each in events)
    left = f"{len(bed.files()) - before} files   {len(claims)} claims   {refusals} refusals"
    print(f"{'left of them':<42} {left}")


def _without_card(name: str) -> Json:
    return pod(name, container(command="exec sleep 1000000"))


def _legacy(name: str) -> Json:
    return pod(name, container(command="exec sleep 1000000", gpu="1", gpumem="1000"))


def _with_claim(name: str) -> Json:
    main = container(command="exec sleep 1000000")
    main["resources"] = {"claims": [{"name": _CLAIM}]}
    claims = [{"name": _CLAIM, "resourceClaimTemplateName": _CLAIM}]
    return pod(name, main, resourceClaims=claims)


@contextmanager
def _example_driver(bed: Bed) -> Iterator[None]:
    """Have the Kubernetes example driver on the node, and a template for its cards."""
    condition = {"cel": {"expression": f"device.driver == '{programs.DRIVER}'"}}
    exactly = {
        "deviceClassName": programs.DRIVER,
        "capacity": {"requests": {"memory": "1000Mi", "compute": "5"}},
    }
    template = {
        "metadata": {"name": _CLAIM},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }
    bed.api.create(
        "deviceclasses",
        {"metadata": {"name": programs.DRIVER}, "spec": {"selectors": [condition]}},
    )
    bed.apply(template, "resourceclaimtemplates")
    kubelet = bed.node.layout.kubelet
    bed.node.start(
        programs.DRIVER,
        [
            *(str(programs.example_driver()), f"--node-name={bed.node.name}"),
            *(f"--num-devices={_CARDS}", "--gpu-allow-multiple-allocations"),
            f"--kubelet-registrar-directory-path={kubelet / 'plugins_registry'}",
            f"--kubelet-plugins-directory-path={kubelet / 'plugins'}",
            f"--cdi-root={bed.node.layout.cdi}",
            *("--kube-api-qps=100000", "--kube-api-burst=100000"),
            f"--kubeconfig={bed.cluster.kubeconfig}",
        ],
    )
    try:
        bed.await_slice()
        yield
    finally:
        bed.node.stop(programs.DRIVER)
        for slice_ in bed.api.list("resourceslices"):
            bed.api.delete("resourceslices", slice_["metadata"]["name"])


def _ready_after(bed: Bed, count: int, make: Callable[[str], Json]) -> dict[str, float]:
    """Create pods and return the seconds from the first creation until each is ready."""
    started = time.perf_counter()
    for number in range(count):
        bed.apply(make(f"p{number}"))
    found: dict[str, float] = {}

    def are_all_ready() -> bool:
        for each in bed.api.list("pods", namespace=NAMESPACE):
            if _is_ready(each):
                found.setdefault(each["metadata"]["name"], time.perf_counter() - started)
        return len(found) == count

    until(are_all_ready, what=f"{count} pods are ready", timeout_s=_LONG_S, every_s=0.02)
    return found


def _is_ready(found: Json) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _restart_kubelet(bed: Bed) -> None:
    """Measure how long the scheduler sees no cards: a kubelet that starts deletes all slices."""

    async def gap(session: Session) -> float:
        found = await session.get(_SLICES)
        version = found["metadata"]["resourceVersion"]
        deleted = 0.0
        restart = asyncio.ensure_future(asyncio.to_thread(bed.node.start_kubelet))
        async with contextlib.aclosing(session.watch(_SLICES, resource_version=version)) as events:
            async for event in events:
                if event["type"] == "DELETED":
                    deleted = time.perf_counter()
                if event["type"] == "ADDED":
                    break
        await restart
        return time.perf_counter() - deleted

    bed.node.stop(KUBELET)
    title = "kubelet restarted, node without slices"
    print(f"{title:<42} {bed.api.run(gap) * 1e3:9.0f} ms")
