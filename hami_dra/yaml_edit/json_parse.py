"""JSON as nodes: YAML readers refuse some of it, such as pairs of surrogates in escapes."""

import json
import re
from typing import Final

from hami_dra.yaml_edit.node import Mapping, Node, Pair, Scalar, Sequence
from hami_dra.yaml_edit.problem import SyntaxProblem

_DEEPEST: Final = 200
_STRINGS: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_WORD: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")


def parse_json(text: str) -> Node | None:
    """Parse JSON; None for text that is something else.

    Raises:
        SyntaxProblem: if it is nested too deeply.
    """
    try:
        json.loads(text)
    except ValueError:
        return None
    except RecursionError as error:
        raise SyntaxProblem(1, 1, "nested too deeply") from error
    return _Scanner(text).node(_after_space(text, 0), 0)


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


class _Scanner:
    """Walks text that is known to be JSON."""

    def __init__(self, text: str) -> None:
        self._text = text

    def node(self, at: int, depth: int) -> Node:
        """Return the node that starts at a position."""
        if depth > _DEEPEST:
            line = self._text.count("\n", 0, at) + 1
            raise SyntaxProblem(line, 1, f"nested too deeply, expected at most {_DEEPEST} levels")
        first = self._text[at]
        if first == "{":
            return self._mapping(at, depth)
        if first == "[":
            return self._sequence(at, depth)
        return self._scalar(at)

    def _scalar(self, at: int) -> Scalar:
        if self._text[at] == '"':
            value, end = _STRINGS.raw_decode(self._text, at)
            return Scalar(at, at, end, text=value, style='"')
        match = _WORD.match(self._text, at)
        end = match.end() if match else at
        return Scalar(at, at, end, text=self._text[at:end])

    def _mapping(self, at: int, depth: int) -> Mapping:
        node = Mapping(at, at, at, flow=True)
        position = _after_space(self._text, at + 1)
        while self._text[position] != "}":
            key = self._scalar(position)
            colon = _after_space(self._text, key.end)
            value = self.node(_after_space(self._text, colon + 1), depth + 1)
            node.pairs.append(Pair(key, value))
            position = self._next(value.end)
        node.end = position + 1
        return node

    def _sequence(self, at: int, depth: int) -> Sequence:
        node = Sequence(at, at, at, flow=True)
        position = _after_space(self._text, at + 1)
        while self._text[position] != "]":
            item = self.node(position, depth + 1)
            node.items.append(item)
            position = self._next(item.end)
        node.end = position + 1
        return node

    def _next(self, end: int) -> int:
        """Return where the next member starts, or the closing bracket stands."""
        position = _after_space(self._text, end)
        if self._text[position] == ",":
            position = _after_space(self._text, position + 1)
        return position
