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


class Standstill:
    """Tells when nothing new has been said of an object for too long.

    A large cluster is given its agents some nodes at a time, which as a whole takes as long as it
    has nodes.

    Args:
        limit_s: how long that may last.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._said: set[str] = set()
        self._since = 0.0

    def is_reached(self, lack: str, now: float) -> bool:
        """Take in what an object lacks now; saying once more what was said before is no news."""
        if lack not in self._said:
            self._said.add(lack)
            self._since = now
        return now - self._since >= self._limit_s


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


def complaints(workload: Json, pods: Sequence[Json], events: Sequence[Json]) -> Iterator[str]:
    """Yield why the pods of a workload do not get ready, as the cluster says it.

    Args:
        workload: as it is stored.
        pods: those of it that there are.
        events: of its namespace.
    """
    warnings = _last_warnings(events)
    status = workload.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            yield condition.get("message") or condition.get("reason", "")
    # A DaemonSet has no such condition.
    if status.get("updatedNumberScheduled", 0) < status.get("desiredNumberScheduled", 0):
        yield from filter(None, [_warning(warnings, workload)])
    for pod in pods:
        for reason in _pod_complaints(pod.get("status") or {}, _warning(warnings, pod)):
            yield f"pod {pod['metadata']['name']}: {reason}"


def _last_warnings(events: Sequence[Json]) -> dict[str, str]:
    """Return the last thing that somebody warned of, by the UID of what it is about."""
    warnings = [each for each in events if each.get("type") == "Warning"]
    return {
        each["involvedObject"].get("uid", ""): each.get("message") or ""
        for each in sorted(warnings, key=_seen)
    }


def _seen(event: Json) -> str:
    """Return when an event was seen last; some are written with one time, some with the other."""
    seen = event.get("lastTimestamp") or event.get("eventTime")
    return str(seen or event["metadata"].get("creationTimestamp") or "")


def _warning(warnings: Mapping[str, str], item: Json) -> str:
    return warnings.get(item["metadata"].get("uid", "unknown"), "")


def _pod_complaints(status: Json, warning: str) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield condition.get("message") or condition.get("reason", "not scheduled")
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if waiting := state.get("waiting"):
            said = waiting.get("message") or warning
            yield ": ".join(filter(None, (waiting.get("reason"), said)))
        elif container.get("ready") is False and "running" in state:
            yield f"{container['name']} runs and is not ready; see its log"
