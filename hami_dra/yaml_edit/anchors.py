"""Aliases during an edit: kept where they still say what is wanted, written out where not."""

from typing import Any, Final

from hami_dra.yaml_edit.node import Alias, Mapping, Node, Scalar, Sequence
from hami_dra.yaml_edit.same import same
from hami_dra.yaml_edit.value import Reader

_GONE: Final = object()


class Anchors:
    """What each anchored node will say."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._final: dict[int, Any] = {}

    def visit(self, node: Node, after: Any) -> None:  # noqa: ANN401 - any JSON
        """Note what a node will say."""
        if node.anchor:
            self._final[id(node)] = after

    def drop(self, node: Node) -> None:
        """Note that a node goes, with all that is in it."""
        if isinstance(node, Alias):
            return
        if node.anchor:
            self._final[id(node)] = _GONE
        for member in _members(node):
            self.drop(member)

    def says(self, node: Node) -> Any:  # noqa: ANN401 - any JSON
        """Return what a node will say by itself, an alias through its target."""
        target = node.target if isinstance(node, Alias) else node
        if target is None:
            return _GONE
        if id(target) in self._final:
            return self._final[id(target)]
        return self._reader.value(target)

    def touches(self, node: Node) -> bool:
        """Tell whether a node follows an anchor that was visited, so that it may say less now."""
        if not self._final:
            return False
        if isinstance(node, Alias):
            return id(node.target) in self._final
        return any(self.touches(member) for member in _members(node))

    def keeps(self, node: Alias, after: Any) -> bool:  # noqa: ANN401 - any JSON
        """Tell whether an alias will still say what is wanted."""
        return same(self.says(node), after)

    def merges(self, node: Node) -> dict[str, Any] | None:
        """Return what a merge key will bring; None if it cannot stay."""
        sources = node.items if isinstance(node, Sequence) else [node]
        found: dict[str, Any] = {}
        for each in reversed(sources):
            value = self.says(each)
            if not isinstance(value, dict):
                return None
            found.update(value)
        return found


def _members(node: Node) -> list[Node]:
    if isinstance(node, Mapping):
        return [each for pair in node.pairs for each in (pair.key, pair.value)]
    if isinstance(node, Scalar | Alias):
        return []
    return node.items
