"""YAML as plain values that remember their lines, so that messages can name them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from hami_dra.policies.problem import FieldPath, PolicyFileError, Problem

_MOST_VALUES: Final = 100_000
"""Aliases of aliases make a short text longer than any memory."""

_LONGEST_SHOWN: Final = 20


@dataclass(slots=True)
class Written:
    """One YAML document.

    Attributes:
        value: what it says, as dicts, lists and scalars; keys are text.
        lines: where each field stands.
        numbers: how numbers are spelled, since 1.30 is not 1.3 to its author.
        problems: what YAML allows and a policy does not.
    """

    value: Any = None
    lines: dict[FieldPath, int] = field(default_factory=dict)
    numbers: dict[FieldPath, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: FieldPath) -> int:
        """Return the line of a field, or of the nearest one around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_yaml(text: str, source: str) -> Written:
    """Read one YAML or JSON document.

    Raises:
        PolicyFileError: if the text is not one, with line and column.
    """
    yaml = YAML(typ="safe", pure=True)
    written = Written()
    try:
        node = yaml.compose(text)
        if node is not None:
            written.value = _Reader(yaml, written).read(node, (), ())
    except MarkedYAMLError as error:
        raise PolicyFileError(source, [_syntax(error)]) from error
    except YAMLError as error:
        raise PolicyFileError(source, [Problem(1, (), " ".join(str(error).split()))]) from error
    except RecursionError as error:
        raise PolicyFileError(source, [Problem(1, (), "nested too deeply")]) from error
    except _TooMuchError as error:
        raise PolicyFileError(source, [error.problem]) from error
    return written


def _syntax(error: MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    reason = "; ".join(part for part in (error.context, error.problem) if part)
    if mark is None:
        return Problem(1, (), f"not YAML: {reason}")
    return Problem(mark.line + 1, (), f"column {mark.column + 1}: not YAML: {reason}")


class _TooMuchError(Exception):
    """There are more values than a policy can have."""

    def __init__(self, line: int, path: FieldPath) -> None:
        message = f"found more than {_MOST_VALUES} values, expected the few of a policy"
        self.problem = Problem(line, path[:1], f"{message}; look at its aliases")
        super().__init__(message)


class _Reader:
    """Turns nodes into values."""

    def __init__(self, yaml: YAML, written: Written) -> None:
        self._construct = yaml.constructor.construct_object
        self._written = written
        self._count = 0

    def read(self, node: Node, path: FieldPath, around: tuple[Node, ...]) -> Any:  # noqa: ANN401 - any YAML
        """Return a node's value, noting its line and what is wrong with it."""
        line = node.start_mark.line + 1
        self._written.lines.setdefault(path, line)
        self._count += 1
        if self._count > _MOST_VALUES:
            raise _TooMuchError(line, path)
        if node in around:
            self._written.problems.append(Problem(line, path, "found an alias of what is around"))
            return None
        if isinstance(node, MappingNode):
            return dict(self._members(node, path, (*around, node)))
        if isinstance(node, SequenceNode):
            inside = (*around, node)
            return [
                self.read(item, (*path, index), inside) for index, item in enumerate(node.value)
            ]
        value = self._scalar(node, path, line)
        if isinstance(value, int | float):
            self._written.numbers[path] = str(node.value)
        return value

    def _scalar(self, node: Node, path: FieldPath, line: int) -> Any:  # noqa: ANN401 - any YAML
        try:
            return self._construct(node)
        except (LookupError, TypeError, ValueError):  # what looks like a date, and is none
            text = str(node.value)
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
            message = f"found {shown!r}, which is no value of the kind that it looks like"
            self._written.problems.append(Problem(line, path, f"{message}; put it in quotes"))
            return text

    def _members(
        self, node: MappingNode, path: FieldPath, around: tuple[Node, ...]
    ) -> Iterator[tuple[str, Any]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._written.problems.append(
                    Problem(line, path, "found a list or an object as a key, expected text")
                )
                continue
            key = str(key_node.value)
            if str(key_node.tag).endswith(":merge"):
                message = "found a merge, expected keys; write out what it stands for"
                self._written.problems.append(Problem(line, (*path, key), message))
                continue
            if key in seen:
                message = f"found twice, first in line {seen[key]}; keep one of them"
                self._written.problems.append(Problem(line, (*path, key), message))
                continue
            seen[key] = line
            self._written.lines[(*path, key)] = line
            yield key, self.read(value_node, (*path, key), around)
