"""What is wrong with a policy file, in the words of the file: line, path and what to write."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

FieldPath: TypeAlias = tuple[str | int, ...]
"""Keys and positions that lead to a field."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        line: of the file, from 1.
        path: the field; empty for the file as a whole.
        message: what was found, what was expected and what to do.
    """

    line: int
    path: FieldPath
    message: str

    def __str__(self) -> str:
        """Render with the path in the file's own spelling."""
        return (
            f"{self.line}: {dotted(self.path)}: {self.message}"
            if self.path
            else (f"{self.line}: {self.message}")
        )


class PolicyFileError(Exception):
    """A policy file cannot be used; the text has one line for each problem.

    Attributes:
        source: the file's name.
        problems: everything that is wrong, in the order of the file.
    """

    def __init__(self, source: str, problems: Iterable[Problem], reason: str = "") -> None:
        super().__init__(source, problems, reason)
        self.source = source
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        self._reason = reason

    def __str__(self) -> str:
        """Render one line for each problem."""
        lines = [f"{self.source}: {self._reason}"] if self._reason else []
        return "\n".join([*lines, *(f"{self.source}:{problem}" for problem in self.problems)])


def dotted(path: FieldPath) -> str:
    """Write a path as people do, such as `families[1].capacities.slots`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")


def found(value: Any) -> str:  # noqa: ANN401 - any YAML
    """Say what stands there."""
    if value is None:
        return "found nothing"
    if isinstance(value, bool):
        return f"found {str(value).lower()}"
    if isinstance(value, dict):
        return "found an object"
    if isinstance(value, list):
        return "found a list"
    if isinstance(value, int | float):
        return f"found the number {value}"
    return f"found {value!r}" if isinstance(value, str) else f"found {value}"
