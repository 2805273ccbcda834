"""How many pods an object wants of one of its templates at the same time."""

from typing import Any, Final

from hami_dra.cli.workloads import Workload
from hami_dra.migration import Json

_MULTIPLIERS: Final = ("replicas", "parallelism")
_LEADER: Final = "leaderTemplate"
_WORKER: Final = "workerTemplate"

# Jobs stay after their end, of some operators for ever; the releases are those of `cli.kinds`.
_OF_TRAINING: Final = frozenset({"Succeeded", "Failed"})
_ENDS: Final = {
    ("batch", "Job"): frozenset({"Complete", "Failed"}),
    ("jobset.x-k8s.io", "JobSet"): frozenset({"Completed", "Failed"}),
    ("kubeflow.org", "PyTorchJob"): _OF_TRAINING,
    ("kubeflow.org", "TFJob"): _OF_TRAINING,
    ("kubeflow.org", "MPIJob"): _OF_TRAINING,
}
"""By group and kind the conditions that mean its end."""
_VOLCANO: Final = ("batch.volcano.sh", "Job")
_VOLCANO_ENDS: Final = frozenset({"Completed", "Failed", "Terminated"})


def copies(workload: Workload) -> int:
    """Return the number of pods; a controller's `replicas` and `parallelism` on the way count.

    A template that nobody runs has none, a suspended job as many as it will have, a DaemonSet as
    many as nodes want it.
    """
    content = workload.thing.content
    kind = content.get("kind")
    if kind == "PodTemplate":
        return 0
    if kind == "DaemonSet":
        return _amount((content.get("status") or {}).get("desiredNumberScheduled"), 0)
    found: int = 1
    node: Any = content
    for step in workload.steps[len(workload.thing.steps) :]:
        if isinstance(node, dict):
            found *= _multiplier(node, step)
        node = node[step]
    return found


def is_over(content: Json) -> bool:
    """Tell whether a pod or a job has ended, so that it holds nothing any more."""
    status = content.get("status")
    if not isinstance(status, dict):
        return False
    kind = str(content.get("kind") or "")
    if kind == "Pod":
        return status.get("phase") in {"Succeeded", "Failed"}
    group = str(content.get("apiVersion") or "").rpartition("/")[0]
    if (group, kind) == _VOLCANO:
        state = status.get("state")
        return isinstance(state, dict) and state.get("phase") in _VOLCANO_ENDS
    ends = _ENDS.get((group, kind), ())
    return any(
        each.get("type") in ends and each.get("status") == "True"
        for each in status.get("conditions") or ()
        if isinstance(each, dict)
    )


def _multiplier(node: Json, step: str | int) -> int:
    """Return how often an object on the way repeats what is below it."""
    found = 1
    for name in _MULTIPLIERS:
        found *= _amount(node.get(name), 1)
    # A job never runs more pods at a time than it has left to complete.
    found = min(found, _amount(node.get("completions"), found))
    if step == _WORKER:
        # Without a template of its own the leader is one of the workers.
        found *= max(0, _amount(node.get("size"), 1) - (_LEADER in node))
    return found


def _amount(written: Any, default: int) -> int:  # noqa: ANN401 - any JSON
    is_count = isinstance(written, int) and not isinstance(written, bool) and written >= 0
    return written if is_count else default
