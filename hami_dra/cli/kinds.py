"""Which kinds carry pods, and where: a table, so that a new kind is a line of data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

POD_PATHS: Final[dict[str, tuple[str, ...]]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "ReplicationController": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Kind to the path of its pod template; empty for the pod itself."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An object that carries a pod.

    Attributes:
        title: `Kind/name`, for messages.
        namespace: the object's namespace; empty when it does not name one.
        path: where the pod stands in its document, such as `spec.template`.
        pod: the pod, the very node of the document.
        outside: names of the annotations that stand on the object and not on its pod.
    """

    title: str
    namespace: str
    path: str
    pod: Any
    outside: tuple[str, ...]


def workloads(document: Any, path: tuple[str, ...] = ()) -> Iterator[Workload]:  # noqa: ANN401 - any YAML
    """Walk the workloads of a document: the object itself, or the items of a List."""
    if not isinstance(document, dict):
        return
    kind = str(document.get("kind", ""))
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for index, item in enumerate(document["items"]):
            yield from workloads(item, (*path, f"items[{index}]"))
    elif kind in POD_PATHS:
        node: Any = document
        steps = POD_PATHS[kind]
        for step in steps:
            node = node.get(step) if isinstance(node, dict) else None
        if isinstance(node, dict):
            yield Workload(
                title=_title(document),
                namespace=_namespace(document),
                path=".".join((*path, *steps)),
                pod=node,
                outside=tuple(_annotations(document) - _annotations(node)),
            )


def _title(document: Any) -> str:  # noqa: ANN401 - any YAML
    metadata = document.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    name = named.get("name") or named.get("generateName") or "unnamed"
    return f"{document['kind']}/{name}"


def _namespace(document: Any) -> str:  # noqa: ANN401 - any YAML
    metadata = document.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""


def _annotations(node: Any) -> set[str]:  # noqa: ANN401 - any YAML
    metadata = node.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return {str(name) for name in annotations} if isinstance(annotations, dict) else set()
