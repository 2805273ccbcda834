"""What nodes say, as plain JSON: aliases followed, merge keys merged as Kubernetes merges them."""

from typing import Any, Final

from hami_dra.yaml_edit import scalar
from hami_dra.yaml_edit.node import Alias, Mapping, Node, Scalar, Sequence
from hami_dra.yaml_edit.problem import SyntaxProblem

_MERGE: Final = "<<"
_UNKNOWN: Final = object()
_MOST_NODES: Final = 1_000_000
"""Of one document with its aliases followed; a few lines of YAML can stand for 10^9 of them."""


def is_merge(key: Node) -> bool:
    """Tell whether a key is `<<`, which merges another mapping."""
    return isinstance(key, Scalar) and key.text == _MERGE and not key.style and not key.tag


class Reader:
    """Reads the values of one text's nodes. No two places share an object."""

    def __init__(self, text: str, most_nodes: int = _MOST_NODES) -> None:
        self._text = text
        self._left = most_nodes
        self._open: list[Node] = []

    def value(self, node: Node) -> Any:  # noqa: ANN401 - any JSON
        """Return what a node says.

        Raises:
            SyntaxProblem: if it says nothing that JSON can hold.
        """
        self._left -= 1
        if not self._left:
            raise self.problem(node, "aliases stand for too many values")
        if isinstance(node, Alias):
            return self._aliased(node)
        if isinstance(node, Sequence):
            return self._within(node, lambda: [self.value(item) for item in node.items])
        if isinstance(node, Mapping):
            return self._within(node, lambda: self._mapping(node))
        try:
            return scalar.resolved(node.text, style=node.style, tag=node.tag)
        except ValueError as error:
            raise self.problem(node, str(error)) from error

    def key(self, node: Node) -> str:
        """Return a key as text.

        Raises:
            SyntaxProblem: if it is none.
        """
        try:
            return scalar.key_text(self.value(node))
        except ValueError as error:
            raise self.problem(node, str(error)) from error

    def _within(self, node: Node, read: Any) -> Any:  # noqa: ANN401 - any JSON
        self._open.append(node)
        try:
            return read()
        finally:
            self._open.pop()

    def _aliased(self, node: Alias) -> Any:  # noqa: ANN401 - any JSON
        if node.target is None or any(node.target is each for each in self._open):
            raise self.problem(node, "found an alias of what is around it")
        return self.value(node.target)

    def _mapping(self, node: Mapping) -> dict[str, Any]:
        """Merge in the order of the text, as Kubernetes does: what comes later wins."""
        found: dict[str, Any] = {}
        lines: dict[str, Node] = {}
        for pair in node.pairs:
            if is_merge(pair.key):
                found.update(self.merged(pair.value))
                continue
            key = self.key(pair.key)
            if key in lines:
                first = self._line(lines[key])
                reason = f"found the key {key!r} twice, first in line {first}; remove one of them"
                raise self.problem(pair.key, reason)
            lines[key] = pair.key
            found[key] = self.value(pair.value)
        return found

    def merged(self, node: Node) -> dict[str, Any]:
        """Return what a merge key brings: of several mappings, the first wins.

        Raises:
            SyntaxProblem: if it is neither a mapping nor a list of them.
        """
        value = self.value(node)
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in sources):
            raise self.problem(node, "found something else, expected a mapping to merge")
        found: dict[str, Any] = {}
        for each in reversed(sources):
            found.update(each)
        return found

    def problem(self, node: Node, reason: str) -> SyntaxProblem:
        """Return a problem at a node's place."""
        column = node.start - (self._text.rfind("\n", 0, node.start) + 1) + 1
        return SyntaxProblem(self._line(node), column, reason)

    def _line(self, node: Node) -> int:
        return self._text.count("\n", 0, node.start) + 1


class Memory(Reader):
    """Reads each node once; what it returned is not to be changed."""

    def __init__(self, text: str) -> None:
        super().__init__(text, most_nodes=-1)  # the parser has counted them
        self._known: dict[int, Any] = {}

    def value(self, node: Node) -> Any:  # noqa: ANN401 - any JSON
        """Return what a node says."""
        found = self._known.get(id(node), _UNKNOWN)
        if found is _UNKNOWN:
            found = self._known[id(node)] = super().value(node)
        return found
