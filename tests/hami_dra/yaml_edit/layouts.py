"""Drawn documents: values, and texts that say them in every layout that people use."""

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hypothesis import strategies as st

from hami_dra.yaml_edit.same import same

Value: TypeAlias = Any
"""Any JSON."""

Draw: TypeAlias = Any
"""The drawing function of a test, which hypothesis leaves untyped."""

WORDS = ("name", "limits", "nvidia.com/gpu", "cpu", "env", "a b", "0123", "on", "#x", "é", "-")
TEXTS = st.sampled_from(
    ("plain", "yes", "0777", "1e3", "a: b", "x #y", "it's", 'say "hi"', "back\\slash", "", " led",
     "two\nlines", "end\n", "ü", "☃", "{", "- a", "%a", "~", "null", "&a", "*a", "!t", "a,b", "\t")
)  # fmt: skip
SCALARS = st.one_of(TEXTS, st.integers(-5, 2**40), st.booleans(), st.none(), st.just(1.5))


def values(leaves: int = 12) -> st.SearchStrategy[dict[str, Any]]:
    """Draw an object."""
    inner = st.recursive(
        SCALARS,
        lambda within: st.one_of(
            st.lists(within, max_size=3),
            st.dictionaries(st.sampled_from(WORDS), within, max_size=4),
        ),
        max_leaves=leaves,
    )
    return st.dictionaries(st.sampled_from(WORDS), inner, min_size=1, max_size=4)


@dataclass
class Writer:
    """Writes a value, drawing how.

    Attributes:
        draw: of the test.
        marks: the comments that were written, by the path of the value whose line they end.
        anchors: names that were given to values, for aliases and merge keys.
    """

    draw: Draw
    marks: dict[tuple[Any, ...], str] = field(default_factory=dict)
    anchors: list[tuple[str, Value]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.step = self.draw(st.sampled_from((2, 4, 3)))
        self.offset = self.draw(st.sampled_from((0, 2, 1)))
        self.gap = self.draw(st.sampled_from((2, 4)))

    def flip(self) -> bool:
        """Draw yes or no."""
        return bool(self.draw(st.booleans()))

    def anchor(self, value: Value) -> str:
        """Draw a name for a value, and note it."""
        if self.draw(st.integers(0, 3)) or not isinstance(value, dict | list | str):
            return ""
        self.anchors.append((f"a{len(self.anchors)}", value))
        return f" &{self.anchors[-1][0]}"

    def alias(self, value: Value) -> str:
        """Draw an alias for a value that has a name already."""
        for name, named in self.anchors:
            if same(named, value) and self.flip():
                return f"*{name}"
        return ""

    def merge(self, value: dict[str, Value]) -> tuple[str, dict[str, Value]]:
        """Draw a merge key for a part of an object; return it and the rest."""
        for name, named in self.anchors:
            is_part = isinstance(named, dict) and all(
                key in value and same(value[key], member) for key, member in named.items()
            )
            if is_part and named and self.flip():
                return f"*{name}", {k: v for k, v in value.items() if k not in named}
        return "", value

    def mark(self, path: tuple[Any, ...]) -> str:
        """Draw a comment for the end of a line, and note it."""
        if self.flip():
            return ""
        self.marks[path] = f"# mark {len(self.marks)}"
        gap: str = self.draw(st.sampled_from((" ", "  ", " \t")))
        return gap + self.marks[path]

    def between(self, column: int) -> list[str]:
        """Draw what stands on the line before a member."""
        kind = self.draw(st.sampled_from(("", "", "", "blank", "comment", "left")))
        if kind == "blank":
            return [""]
        return {"comment": [" " * column + "# above"], "left": ["# left"]}.get(kind, [])

    def block(self, value: Value, column: int, path: tuple[Any, ...]) -> list[str]:
        """Return the lines of an object or list that is not empty."""
        lines: list[str] = []
        if isinstance(value, dict):
            merged, rest = self.merge(value)
            lines += [f"{' ' * column}<<: {merged}"] if merged else []
            for key, member in rest.items():
                lines += self.between(column)
                lines += self.pair(key, member, column, (*path, key))
            return lines
        for index, member in enumerate(value):
            lines += self.between(column)
            lines += self.item(member, column, (*path, index))
        return lines

    def pair(self, key: str, value: Value, column: int, path: tuple[Any, ...]) -> list[str]:
        """Return the lines of a member of an object."""
        head = " " * column + self.scalar(key) + ":"
        if value and isinstance(value, dict | list) and self.flip():
            indent = self.step if isinstance(value, dict) else self.offset
            lines = self.block(value, column + indent, path)
            # Named once it is written, since nothing in it may refer to it.
            return [head + self.anchor(value) + self.mark(path), *lines]
        return self.inline(head + " ", value, column + self.step, path)

    def item(self, value: Value, column: int, path: tuple[Any, ...]) -> list[str]:
        """Return the lines of a member of a list."""
        dash = " " * column + "-".ljust(self.gap)
        if value and isinstance(value, dict | list) and self.flip():
            lines = self.block(value, column + self.gap, path)
            if lines[0].strip() and not lines[0].lstrip().startswith("#"):
                return [dash + lines[0][column + self.gap :], *lines[1:]]
            return [" " * column + "-", *lines]
        return self.inline(dash, value, column + 1, path)

    def inline(self, head: str, value: Value, column: int, path: tuple[Any, ...]) -> list[str]:
        """Return the lines of what starts on the line of its key or dash."""
        if isinstance(value, str) and "\n" in value and value.strip() and self.flip():
            # A block scalar: what looks like a comment in it is text.
            chomp = "" if value.endswith("\n") else "-"
            rest = [" " * (column + 1) + line for line in value.rstrip("\n").split("\n")]
            return [head + "|" + chomp + self.mark(path), *rest]
        if alias := self.alias(value):
            return [head + alias + self.mark(path)]
        text = self.flow(value)
        return [head + (self.anchor(value) + " ").lstrip() + text + self.mark(path)]

    def flow(self, value: Value) -> str:
        """Return a value in braces and brackets."""
        if isinstance(value, dict):
            pad = " " if self.flip() else ""
            inner = ", ".join(f"{self.scalar(k)}: {self.flow(v)}" for k, v in value.items())
            return f"{{{pad}{inner}{pad}}}" if inner else "{}"
        if isinstance(value, list):
            return f"[{', '.join(self.flow(each) for each in value)}]"
        return self.scalar(value)

    def scalar(self, value: Value) -> str:
        """Return a scalar, quoted in one way or another."""
        if not isinstance(value, str):
            return json.dumps(value)
        if (
            value.isalpha()
            and value.isascii()
            and value not in {"y", "yes", "on", "null"}
            and self.flip()
        ):
            return value
        if value.isprintable() and self.flip():
            return "'" + value.replace("'", "''") + "'"
        return json.dumps(value, ensure_ascii=self.flip())


@st.composite
def texts(draw: Draw) -> tuple[str, dict[tuple[Any, ...], str]]:
    """Draw a document's text, and its marks."""
    value = draw(values())
    if draw(st.booleans()):
        value["copy"] = value[draw(st.sampled_from(sorted(value)))]
    if draw(st.sampled_from((True, False, False))):
        return json.dumps(value, indent=draw(st.sampled_from((None, 2, 4, "\t")))), {}
    writer = Writer(draw)
    lines = writer.block(value, 0, ())
    break_ = draw(st.sampled_from(("\n", "\n", "\r\n")))
    return break_.join(lines) + draw(st.sampled_from((break_, ""))), writer.marks


@st.composite
def changed(draw: Draw, value: Value) -> Value:
    """Draw what a value could become by an edit: members go, change and come."""
    if isinstance(value, dict):
        kept = {k: draw(changed(v)) for k, v in value.items() if draw(st.integers(0, 3))}
        new = draw(
            st.dictionaries(st.sampled_from(("new", "claims", "n/e.w")), values(4), max_size=1)
        )
        return kept | new
    if isinstance(value, list):
        kept_items = [draw(changed(v)) for v in value if draw(st.integers(0, 3))]
        return kept_items + draw(st.lists(values(4), max_size=1))
    return draw(SCALARS) if draw(st.integers(0, 5)) == 0 else value
