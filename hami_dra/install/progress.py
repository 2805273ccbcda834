"""What an object still lacks before it does its work: pure, from the object as it is stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from hami_dra.migration import Json


def works_at_once(item: Json) -> bool:
    """Tell whether an object does its work as soon as it is stored."""
    return item["kind"] not in _LACKS


def lacks(item: Json) -> str:
    """Say what a stored object waits for; empty when for nothing."""
    return "" if works_at_once(item) else _LACKS[item["kind"]](item)


def _deployment(item: Json) -> str:
    status = item.get("status") or {}
    if status.get("observedGeneration", 0) < item["metadata"]["generation"]:
        return "its controller has not seen it yet"
    wanted = item["spec"]["replicas"]
    updated, ready = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated < wanted:
        return f"{updated} of {wanted} replicas are of the new revision"
    if (old := status.get("replicas", 0) - updated) > 0:
        return f"{old} replicas of the old revision have to go"
    return "" if ready >= wanted else f"{ready} of {wanted} replicas are ready"


def _daemon_set(item: Json) -> str:
    status = item.get("status") or {}
    if status.get("observedGeneration", 0) < item["metadata"]["generation"]:
        return "its controller has not seen it yet"
    wanted = status.get("desiredNumberScheduled", 0)
    updated, ready = status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0)
    if updated < wanted:
        return f"{updated} of {wanted} pods are of the new revision"
    return "" if ready >= wanted else f"{ready} of {wanted} pods are ready"


def _configuration(item: Json) -> str:
    hooks: Sequence[Json] = item.get("webhooks") or ()
    blind = [each["name"] for each in hooks if not each["clientConfig"].get("caBundle")]
    return f"nobody has written the caBundle of {', '.join(blind)} yet" if blind else ""


_LACKS: Final[Mapping[str, Callable[[Json], str]]] = {
    "Deployment": _deployment,
    "DaemonSet": _daemon_set,
    "MutatingWebhookConfiguration": _configuration,
    "ValidatingWebhookConfiguration": _configuration,
}


def complaints(workload: Json, pods: Sequence[Json]) -> Iterator[str]:
    """Yield why the pods of a workload do not get ready, as the cluster says it."""
    for condition in (workload.get("status") or {}).get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield condition.get("message") or condition.get("reason", "")
    for pod in pods:
        for reason in _pod_complaints(pod.get("status") or {}):
            yield f"pod {pod['metadata']['name']}: {reason}"


def _pod_complaints(status: Json) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield condition.get("message") or condition.get("reason", "not scheduled")
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if waiting := state.get("waiting"):
            yield ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
        elif container.get("ready") is False and "running" in state:
            yield f"{container['name']} runs and is not ready; see its log"
