"""Manifests that the API takes, and the same with one damage each that it refuses."""

import copy
from typing import Any, Final

from hami_dra.migration import Json

GOOD: Final[Json] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "creationTimestamp": None, "labels": {"app": "web"}},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": None},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "i",
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": None}],
                        "ports": [{"name": "web", "containerPort": 80}],
                        "livenessProbe": {"httpGet": {"port": "web"}},
                        "readinessProbe": {"tcpSocket": {"port": 80}},
                        "startupProbe": {"exec": {"command": ["true"]}},
                        "resources": {
                            "requests": {"cpu": 0.5},
                            "limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000, "cpu": 1},
                        },
                    }
                ],
                "nodeSelector": None,
                "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": 1000000}}],
            },
        },
    },
}
"""Numbers as quantities, ports by number and by name, and nulls, which mean absent."""

REPORTED: Final[Json] = {
    **GOOD,
    "kind": "DaemonSet",
    "spec": {name: GOOD["spec"][name] for name in ("selector", "template")},
    "status": {},
}
"""A status without what a status must have, as generators write it."""

_CONTAINER: Final = "spec.template.spec.containers.0"

DAMAGES: Final[dict[str, tuple[str, object, str]]] = {
    "unknown field": (f"{_CONTAINER}.imagePullPolcy", "Always", "expected imagePullPolicy"),
    "name in Python's style": (f"{_CONTAINER}.working_dir", "/", "expected workingDir"),
    "wrong case": ("spec.Replicas", 1, "expected replicas"),
    "far from any field": (f"{_CONTAINER}.qqq", 1, "Container does not have; remove it"),
    "text for a number": ("spec.replicas", "1", 'found "1", expected a whole number'),
    "part of a number": ("spec.replicas", 1.5, "found 1.5, expected a whole number"),
    "number for text": (f"{_CONTAINER}.env.0.value", 1, "found 1, expected a string"),
    "truth for text": ("spec.template.metadata.labels.x", True, "found true, expected a string"),
    "text for truth": (f"{_CONTAINER}.tty", "yes", 'found "yes", expected true or false'),
    "list for an object": ("spec.template.spec.nodeSelector", ["a"], "expected an object"),
    "object for a list": (f"{_CONTAINER}.args", {"a": "b"}, "found an object, expected a list"),
    "text for an object": ("spec.template.spec.securityContext", "x", "expected an object"),
    "list for a port": (
        f"{_CONTAINER}.livenessProbe.httpGet.port",
        [80],
        "expected a whole number or a string",
    ),
    "truth for a quantity": (
        "spec.template.spec.volumes.0.emptyDir.sizeLimit",
        True,
        "found true, expected a quantity",
    ),
    "no time": ("metadata.creationTimestamp", "yesterday", "expected a time such as"),
    "nothing required": (f"{_CONTAINER}.env.0.name", None, "found nothing, expected a string"),
    "no selector": ("spec.selector", None, "found nothing, expected an object"),
    "old version": ("apiVersion", "extensions/v1beta1", "expected apps/v1"),
}
"""By name: where, what stands there, and what the offline check says of it."""


def damaged(name: str) -> Json:
    """Return the good manifest with one damage."""
    path, value, _ = DAMAGES[name]
    manifest = copy.deepcopy(GOOD)
    node: Any = manifest
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        node = node[step]
    node[last] = value
    return manifest


def place(name: str) -> str:
    """Return where a damage is, as messages write it."""
    parts = DAMAGES[name][0].split(".")
    return "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in parts).removeprefix(".")
