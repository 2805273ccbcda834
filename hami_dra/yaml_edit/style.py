"""How a text is laid out, so that what is added looks like what is there."""

import re
from dataclasses import dataclass
from typing import Final

from hami_dra.yaml_edit.node import Mapping, Node, Pair, Sequence

_BLANK: Final = re.compile(r"[ \t]*")
_COLON: Final = re.compile(r"[ \t]*:")
_LINE_END: Final = re.compile(r"\r?\n|\Z")


class Lines:
    """A text by its lines, of which the last ends like the others.

    Attributes:
        text: with a line break at its end, where it had none.
        break_: what ends a line.
    """

    def __init__(self, text: str) -> None:
        self.break_ = "\r\n" if "\r\n" in text else "\n"
        self.text = text if text.endswith("\n") else text + self.break_

    def start(self, position: int) -> int:
        """Return where the line of a position starts."""
        return self.text.rfind("\n", 0, position) + 1

    def column(self, position: int) -> int:
        """Return how far from its line's start a position is."""
        return position - self.start(position)

    def end(self, position: int) -> int:
        """Return where the line of a position ends, before its break."""
        match = _LINE_END.search(self.text, position)
        return match.start() if match else len(self.text)

    def next(self, position: int) -> int:
        """Return where the next line starts; the text's end where there is none."""
        match = _LINE_END.search(self.text, position)
        return match.end() if match else len(self.text)

    def indent(self, position: int) -> str:
        """Return the white space at the start of a position's line."""
        match = _BLANK.match(self.text, self.start(position))
        return match.group() if match else ""

    def is_first(self, position: int) -> bool:
        """Tell whether only spaces stand before a position in its line."""
        return not self.text[self.start(position) : position].strip(" ")

    def comment_column(self, start: int) -> int | None:
        """Return where the comment starts in a line that holds nothing else."""
        match = _BLANK.match(self.text, start)
        at = match.end() if match else start
        return at - start if self.text[at : at + 1] == "#" else None

    def after_block(self, end: int, column: int) -> int:
        """Return where the next line starts after a block and its comments.

        Args:
            end: after the block's last character.
            column: comments further right than this belong to the block.
        """
        at = end if self._ends_a_line(end) else self.next(end)
        while at < len(self.text):
            comment = self.comment_column(at)
            if comment is None or comment <= column:
                break
            at = self.next(at)
        return at

    def _ends_a_line(self, end: int) -> bool:
        return end > 0 and self.text[end - 1] == "\n"

    def before_block(self, start: int) -> int:
        """Return the start of a block's first line, or of the comments directly above it."""
        at = self.start(start)
        column = start - at
        while at:
            above = self.start(at - 1)
            if self.comment_column(above) != column:
                break
            at = above
        return at

    def colon(self, pair: Pair) -> int:
        """Return the position after the colon of a pair; -1 for one without."""
        match = _COLON.match(self.text, pair.key.end)
        return match.end() if match else -1


@dataclass(frozen=True, slots=True)
class Layout:
    """How blocks are laid out.

    Attributes:
        step: columns from an object's keys to those of an object in it.
        offset: columns from a key to the dashes of its list.
        gap: columns from a dash to its member.
    """

    step: int = 2
    offset: int = 0
    gap: int = 2


def layout_of(root: Node, lines: Lines) -> Layout:
    """Return the layout that the first blocks of a document have."""
    step = offset = gap = None
    waiting: list[Node] = [root]
    while waiting and None in {step, offset, gap}:
        node = waiting.pop(0)
        if isinstance(node, Sequence) and not node.flow:
            first = node.items[0]
            if gap is None:
                gap = _gap(node, first, lines)
            waiting += node.items
        if not isinstance(node, Mapping) or node.flow:
            continue
        column = lines.column(node.pairs[0].key.start)
        for value in (pair.value for pair in node.pairs):
            if isinstance(value, Mapping) and not value.flow:
                step = step or lines.column(value.pairs[0].key.start) - column
            elif isinstance(value, Sequence) and not value.flow and offset is None:
                offset = lines.column(value.content) - column
            waiting.append(value)
    return Layout(step=step or 2, offset=max(offset or 0, 0), gap=gap or 2)


def _gap(node: Sequence, first: Node, lines: Lines) -> int | None:
    """Return the columns from a list's first dash to its member; None if they share no line."""
    if lines.start(node.content) != lines.start(first.start):
        return None
    return max(first.start - node.content, 2)
