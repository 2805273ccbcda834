"""Parse: text to nodes with positions.

YAML goes through libyaml: Kubernetes reads with a port of it to Go, so both take the same text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.error import MarkedYAMLError, YAMLError
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from hami_dra.yaml_edit.json_parse import parse_json
from hami_dra.yaml_edit.node import Alias, Mapping, Node, Pair, Scalar, Sequence
from hami_dra.yaml_edit.problem import SyntaxProblem
from hami_dra.yaml_edit.value import Reader

_DEEPEST: Final = 200
"""Levels; real manifests have fewer than 40, and each level is one of Python's stack too."""

# libyaml where the library was built with it, which is everywhere that wheels exist.
_LOADER: Final[Any] = getattr(yaml, "CLoader", yaml.SafeLoader)

_PROPERTIES: Final = re.compile(r"(?:[&!][^\s,\[\]{}]*(?:\s|#[^\r\n]*)*)+")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document.

    Attributes:
        text: as it was written.
        root: its node; None for nothing but comments.
        value: what it says, as plain JSON.
        is_json: whether it is JSON, not only YAML.
    """

    text: str
    root: Node | None
    value: Any
    is_json: bool


def parse(text: str) -> Document:
    """Parse one document, without its `---`.

    Raises:
        SyntaxProblem: if the text is not one, says a key twice, or is built to exhaust its reader.
    """
    root = parse_json(text) if text.lstrip().startswith("{") else None
    is_json = root is not None
    if root is None:
        root = _compose(text)
    value = Reader(text).value(root) if root is not None else None
    return Document(text, root, value, is_json)


def _compose(text: str) -> Node | None:
    try:
        events = iter(yaml.parse(text, Loader=_LOADER))
        composer = _Composer(text, events)
        return composer.document()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = "; ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise SyntaxProblem(line, column, f"not YAML: {reason}") from error
    except YAMLError as error:
        raise SyntaxProblem(1, 1, f"not YAML: {' '.join(str(error).split())}") from error


class _Composer:
    """Builds nodes from the parser's events."""

    def __init__(self, text: str, events: Iterator[Event]) -> None:
        self._text = text
        self._events = events
        self._anchors: dict[str, Node] = {}

    def document(self) -> Node | None:
        """Return the only document's root."""
        root: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise _problem(event, "found a second document, expected one")
                root = self._node(next(self._events), 0)
            elif isinstance(event, StreamEndEvent):
                break
        return root

    def _node(self, event: Event, depth: int) -> Node:
        if depth > _DEEPEST:
            raise _problem(event, f"nested too deeply, expected at most {_DEEPEST} levels")
        if isinstance(event, AliasEvent):
            return self._alias(event)
        if isinstance(event, ScalarEvent):
            return self._anchored(event, self._scalar(event))
        if isinstance(event, SequenceStartEvent):
            return self._sequence(event, depth)
        if isinstance(event, MappingStartEvent):
            return self._mapping(event, depth)
        raise _problem(event, "found no value, expected one")

    def _alias(self, event: AliasEvent) -> Alias:
        target = self._anchors.get(str(event.anchor))
        if target is None:
            raise _problem(event, f"found *{event.anchor}, expected an anchor of that name before")
        start, end = _span(event)
        return Alias(start, start, end, target=target)

    def _scalar(self, event: ScalarEvent) -> Scalar:
        start, content, end = self._place(event)
        style = event.style or ""
        if style in {"|", ">"} and not event.value.endswith("\n\n"):
            # The library ends a block scalar after the empty lines behind it.
            end = content + len(self._text[content:end].rstrip())
        return Scalar(start, content, end, text=event.value, style=style)

    def _sequence(self, event: SequenceStartEvent, depth: int) -> Sequence:
        start, content, _ = self._place(event)
        node = Sequence(start, content, content, flow=bool(event.flow_style))
        self._anchored(event, node)
        for member in self._events:
            if isinstance(member, SequenceEndEvent):
                self._close(node, member, node.items[-1].end if node.items else content)
                return node
            node.items.append(self._node(member, depth + 1))
        raise _problem(event, "found a list without an end")

    def _mapping(self, event: MappingStartEvent, depth: int) -> Mapping:
        start, content, _ = self._place(event)
        node = Mapping(start, content, content, flow=bool(event.flow_style))
        self._anchored(event, node)
        for member in self._events:
            if isinstance(member, MappingEndEvent):
                self._close(node, member, node.pairs[-1].end if node.pairs else content)
                return node
            key = self._node(member, depth + 1)
            node.pairs.append(self._pair(key, self._node(next(self._events), depth + 1)))
        raise _problem(event, "found an object without an end")

    def _pair(self, key: Node, value: Node) -> Pair:
        is_missing = isinstance(value, Scalar) and value.is_empty
        if is_missing and ":" not in self._text[key.end : value.start]:
            # The library puts a value that is not there where the next token starts.
            value.start = value.content = value.end = key.end
        return Pair(key, value)

    def _close(self, node: Mapping | Sequence, event: Event, last: int) -> None:
        """A block has no end of its own: the library reports where the next thing starts."""
        node.end = _span(event)[1] if node.flow else last

    def _place(self, event: NodeEvent) -> tuple[int, int, int]:
        """Return start, start of the content, and end."""
        start, end = _span(event)
        if not event.anchor and not getattr(event, "tag", None):
            return start, start, end
        match = _PROPERTIES.match(self._text, start)
        content = match.end() if match else start
        return start, (min(content, end) if isinstance(event, ScalarEvent) else content), end

    def _anchored(self, event: NodeEvent, node: Node) -> Node:
        tag = getattr(event, "tag", None)
        node.tag = str(tag) if tag else ""
        if event.anchor:
            node.anchor = event.anchor
            self._anchors[event.anchor] = node
        return node


def _span(event: Event) -> tuple[int, int]:
    """Return where an event's text starts and ends."""
    start, end = event.start_mark, event.end_mark
    if start is None or end is None:
        raise SyntaxProblem(1, 1, "the parser reports no positions")
    return start.index, end.index


def _problem(event: Event, reason: str) -> SyntaxProblem:
    mark = event.start_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    return SyntaxProblem(line, column, reason)
