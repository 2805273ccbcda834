"""The legacy oracle (tests/data/oracle): what HAMi v2.10.0 really answered, and its words in ours.

Every test that compares us with legacy reads its cases here.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hami_dra.migration import Family, Json, Policy

_DATA: Final = Path(__file__).parent / "data" / "oracle"

_RENAMED: Final = {
    "resourceCountName": "count",
    "resourceMemoryName": "memory",
    "resourceMemoryPercentageName": "percentage",
    "resourceCoreName": "cores",
    "resourcePriorityName": "priority",
}
_TUNED: Final = {
    "defaultMemory": "default_memory",
    "defaultCores": "default_cores",
    "defaultGPUNum": "default_count",
    "memoryFactor": "memory_factor",
}

_WHOLE_POD: Final = {
    "gpuCorePolicy": "core_policy",
    "overwriteEnv": "hide_cards",
    "runtimeClassName": "runtime_class",
}


def cases(name: str) -> Iterator[Json]:
    """Yield the cases of one file, such as `requests`, in its order."""
    with gzip.open(_DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            # Fractions stay text: Python would rewrite 3.0e3, the API server reads it as written.
            yield json.loads(line, parse_float=str)


def policy_of(config: Json, *, kubernetes: str = "") -> Policy:
    """Write HAMi's settings as a policy for a version of Kubernetes.

    Raises:
        ValidationError: for settings that a policy refuses.
    """
    nvidia = config.get("nvidia", {})
    names = {_RENAMED[k]: v for k, v in nvidia.items() if k in _RENAMED}
    tuned = {_TUNED[k]: v for k, v in nvidia.items() if k in _TUNED}
    family = Family.model_validate({"resources": names, **tuned})
    whole = {_WHOLE_POD[k]: v for k, v in nvidia.items() if k in _WHOLE_POD}
    return Policy(families=(family,), kubernetes=kubernetes, **whole)


def pod_of(case: Json, name: str = "p") -> Json:
    """Write a case's pod as the manifest that its author applied."""
    spec: Json = {"containers": [], "initContainers": []}
    for container in case["containers"]:
        early = is_early(container)
        spec["initContainers" if early else "containers"].append(_container(container))
    kept = ("schedulerName", "nodeName", "runtimeClassName")
    spec |= {key: case[key] for key in kept if key in case}
    metadata = {"name": name, "labels": case.get("labels", {})}
    if "annotations" in case:
        metadata["annotations"] = case["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_early(container: Json) -> bool:
    """Tell whether a case's container is an init container or a sidecar."""
    return bool(container.get("init") or container.get("sidecar"))


def _container(case: Json) -> Json:
    resources = {key: case[key] for key in ("limits", "requests") if key in case}
    made: Json = {"name": case["name"], "image": "none", "resources": resources}
    if case.get("env"):
        made["env"] = case["env"]
    if case.get("privileged"):
        made["securityContext"] = {"privileged": True}
    if case.get("sidecar"):
        made["restartPolicy"] = "Always"
    return made
