"""What pods of a real node wait for, and whether they leave anything: needs root."""

import time

from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.node.bed import NAMESPACE, Bed, a_bare_bed, at_work, container, pod

_TOGETHER = 40
_MOST = 110  # as many as a kubelet allows
_CARDS = 12
_LONG_S = 900.0


def measure() -> None:
    """Start many pods at once, then as many as a node may have, and look what is left."""
    with a_bare_bed() as bed, at_work(bed, "--count", str(_CARDS)):
        for count in (_TOGETHER, _MOST):
            waits = sorted(_ready_after(bed, count).values())
            middle, last = waits[len(waits) // 2], waits[-1]
            print(
                f"{f'{count} pods at once, to Ready':<34} p50 {middle:5.1f} s   max {last:5.1f} s"
            )
            started = time.perf_counter()
            bed.delete_pods()
            until(lambda: not bed.files(), what="no file of a claim is left", timeout_s=_LONG_S)
            print(f"{f'{count} pods deleted':<34} {time.perf_counter() - started:9.1f} s")
            _say_what_is_left(bed)


def _ready_after(bed: Bed, count: int) -> dict[str, float]:
    """Create pods and return the seconds from the first creation until each is ready."""
    started = time.perf_counter()
    for number in range(count):
        bed.apply(
            pod(f"p{number}", container(command="exec sleep 1000000", gpu="1", gpumem="1000"))
        )
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


def _say_what_is_left(bed: Bed) -> None:
    claims = bed.api.list("resourceclaims", namespace=NAMESPACE)
    events = bed.api.list("events", namespace=NAMESPACE)
    refusals = sum(each["reason"] == "FailedPrepareDynamicResources" for each in events)
    left = f"{len(bed.files())} files   {len(claims)} claims   {refusals} refusals"
    print(f"{'left of them':<34} {left}")
