"""A document as nodes that know where they stand in its text. Positions are characters."""

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(slots=True, eq=False)
class _Placed:
    """Where a node stands.

    Attributes:
        start: its first character, that of its anchor or tag where it has one.
        content: its first character after anchor and tag.
        end: after its last character; for a block, of its last member.
        anchor: its name for aliases, empty for none.
        tag: as written and resolved, empty for none.
    """

    start: int
    content: int
    end: int
    anchor: str = ""
    tag: str = ""


@dataclass(slots=True, eq=False)
class Scalar(_Placed):
    """One value.

    Attributes:
        text: what it says, without quotes and escapes.
        style: `'`, `"`, `|`, `>`, or empty for a plain one.
    """

    text: str = ""
    style: str = ""

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is written where a value could be."""
        return self.content == self.end


@dataclass(slots=True, eq=False)
class Pair:
    """A member of a mapping."""

    key: "Node"
    value: "Node"

    @property
    def end(self) -> int:
        """Return the position after the last character of key and value."""
        return max(self.key.end, self.value.end)


@dataclass(slots=True, eq=False)
class Mapping(_Placed):
    """An object.

    Attributes:
        flow: whether it is written in braces.
        pairs: its members, in the order of the text.
    """

    flow: bool = False
    pairs: list[Pair] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Sequence(_Placed):
    """A list.

    Attributes:
        flow: whether it is written in brackets.
        items: its members, in the order of the text.
    """

    flow: bool = False
    items: list["Node"] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Alias(_Placed):
    """A reference to an anchored node.

    Attributes:
        target: that node.
    """

    target: "Node | None" = None


Node: TypeAlias = Scalar | Mapping | Sequence | Alias
"""Any node."""
