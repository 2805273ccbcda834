"""Write: plain values as YAML blocks, or as YAML or JSON on one line or several."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hami_dra.yaml_edit.scalar import written
from hami_dra.yaml_edit.style import Layout


@dataclass(frozen=True, slots=True)
class FlowStyle:
    """How members in braces and brackets are written.

    Attributes:
        as_json: whether text is always quoted.
        colon: what stands between key and value.
        comma: what stands between members on one line.
        unit: by how much members are indented on lines of their own; empty for a single line.
        line_break: what ends a line.
    """

    as_json: bool = False
    colon: str = ": "
    comma: str = ", "
    unit: str = ""
    line_break: str = "\n"


def as_yaml(value: Any) -> str:  # noqa: ANN401 - any JSON
    """Write a document as YAML in blocks."""
    if not _is_full(value):
        return f"{written(value, as_json=False) if _is_scalar(value) else _empty(value)}\n"
    return "".join(f"{line}\n" for line in block_lines(value, 0, Layout()))


def block_lines(value: Any, column: int, layout: Layout) -> Iterator[str]:  # noqa: ANN401
    """Yield the lines of an object or list that is not empty.

    Args:
        value: what to write.
        column: where its keys or dashes stand.
        layout: how it is laid out.
    """
    if isinstance(value, dict):
        for key, member in value.items():
            yield from pair_lines(key, member, column, layout)
    else:
        for member in value:
            yield from item_lines(member, column, layout)


def pair_lines(key: str, value: Any, column: int, layout: Layout) -> Iterator[str]:  # noqa: ANN401
    """Yield the lines of one member of an object."""
    head = f"{' ' * column}{written(key, as_json=False)}:"
    if not _is_full(value):
        yield f"{head} {inline(value)}"
        return
    yield head
    below = column + (layout.step if isinstance(value, dict) else layout.offset)
    yield from block_lines(value, below, layout)


def item_lines(value: Any, column: int, layout: Layout) -> Iterator[str]:  # noqa: ANN401
    """Yield the lines of one member of a list, the dash at a column."""
    dash = " " * column + "-".ljust(layout.gap)
    if not _is_full(value):
        yield dash + inline(value)
        return
    inner = column + layout.gap
    for index, line in enumerate(block_lines(value, inner, layout)):
        yield line if index else dash + line[inner:]


def inline(value: Any) -> str:  # noqa: ANN401 - a scalar, or an empty object or list
    """Write what needs no lines of its own."""
    return written(value, as_json=False) if _is_scalar(value) else _empty(value)


def flow(value: Any, style: FlowStyle, indent: str = "") -> str:  # noqa: ANN401 - any JSON
    """Write a value in braces and brackets.

    Args:
        value: what to write.
        style: how.
        indent: of the line that it stands on.
    """
    if _is_scalar(value):
        return written(value, as_json=style.as_json)
    if not value:
        return _empty(value)
    inner = indent + style.unit
    if isinstance(value, dict):
        members = [
            f"{written(key, as_json=style.as_json)}{style.colon}{flow(member, style, inner)}"
            for key, member in value.items()
        ]
    else:
        members = [flow(member, style, inner) for member in value]
    open_, close = "{}" if isinstance(value, dict) else "[]"
    if not style.unit:
        return f"{open_}{style.comma.join(members)}{close}"
    joined = f",{style.line_break}{inner}".join(members)
    return f"{open_}{style.line_break}{inner}{joined}{style.line_break}{indent}{close}"


def _is_scalar(value: object) -> bool:
    return not isinstance(value, dict | list)


def _is_full(value: object) -> bool:
    return bool(value) and isinstance(value, dict | list)


def _empty(value: object) -> str:
    return "{}" if isinstance(value, dict) else "[]"
