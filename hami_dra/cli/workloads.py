"""What stands in a document: workloads that can be converted, and objects that cannot."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hami_dra.cli.kinds import ANY, Kind, kind_of
from hami_dra.migration import Json

Steps: TypeAlias = tuple[str | int, ...]
"""Keys and positions that lead to a place in a document."""

_IN_QUOTAS: Final = ("requests.", "limits.")

_UNKNOWN: Final = (
    "names {name}, but not in a place where hami-dra knows pods; if its controller makes pods of"
    " it, the webhook converts them when they are created"
)


@dataclass(frozen=True, slots=True)
class Thing:
    """An object of a document: the document itself, or a member of a List.

    Attributes:
        title: `Kind/name`, for messages.
        namespace: empty when it does not name one.
        steps: where it stands in the document.
        content: the object.
        kind: what is known of its kind; None for nothing.
    """

    title: str
    namespace: str
    steps: Steps
    content: Json
    kind: Kind | None


@dataclass(frozen=True, slots=True)
class Workload:
    """A pod, or a pod template, in an object.

    Attributes:
        thing: the object.
        steps: where the pod stands in the document.
        pod: the pod.
    """

    thing: Thing
    steps: Steps
    pod: Json

    @property
    def path(self) -> str:
        """Return where the pod stands in its document, such as `spec.template`."""
        return dotted(self.steps)

    @property
    def outside(self) -> set[str]:
        """Return the names of annotations that stand on the object and not on its pod."""
        return _annotations(self.thing.content) - _annotations(self.pod)


def dotted(steps: Steps) -> str:
    """Return a place as people write it, such as `items[0].spec.template`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


def things(document: Any, steps: Steps = ()) -> Iterator[Thing]:  # noqa: ANN401 - any YAML
    """Walk the objects of a document: itself, or the members of a List."""
    if not isinstance(document, dict):
        return
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for index, item in enumerate(document["items"]):
            yield from things(item, (*steps, "items", index))
    else:
        yield Thing(_title(document), _namespace(document), steps, document, kind_of(document))


def workloads(thing: Thing) -> Iterator[Workload]:
    """Walk the pods of an object, where its kind can carry claims."""
    if thing.kind is None or thing.kind.reason:
        return
    for path in thing.kind.paths:
        for steps, pod in _found(thing.content, path):
            if isinstance(pod, dict):
                yield Workload(thing, (*thing.steps, *steps), pod)


def named_in(node: Any, names: Collection[str]) -> str:  # noqa: ANN401 - any JSON
    """Return a managed resource that is a key somewhere in a value; empty for none."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            for key in each:
                bare = key.removeprefix(_IN_QUOTAS[0]).removeprefix(_IN_QUOTAS[1])
                if bare in names:
                    return str(key)
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return ""


def unconverted(thing: Thing, names: Collection[str]) -> str:
    """Return why an object that names managed resources, and has no pod of ours, stays as it is.

    Empty for one that names none, or that need not change.
    """
    name = named_in(thing.content, names)
    if not name or (thing.kind is not None and thing.kind.note):
        return ""
    return (thing.kind.reason if thing.kind else "") or _UNKNOWN.format(name=name)


def _found(node: Any, path: tuple[str, ...], steps: Steps = ()) -> Iterator[tuple[Steps, Any]]:  # noqa: ANN401
    if not path:
        yield steps, node
        return
    step, rest = path[0], path[1:]
    if step != ANY:
        if isinstance(node, dict) and step in node:
            yield from _found(node[step], rest, (*steps, step))
    elif isinstance(node, dict):
        for key, member in node.items():
            yield from _found(member, rest, (*steps, key))
    elif isinstance(node, list):
        for index, member in enumerate(node):
            yield from _found(member, rest, (*steps, index))


def _title(document: Json) -> str:
    metadata = document.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    name = named.get("name") or named.get("generateName") or "unnamed"
    return f"{document.get('kind') or 'object without a kind'}/{name}"


def _namespace(document: Json) -> str:
    metadata = document.get("metadata")
    return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""


def _annotations(node: Json) -> set[str]:
    metadata = node.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return set(annotations) if isinstance(annotations, dict) else set()
