"""Edit indented blocks: whole lines go and come, the others stay."""

import re
from dataclasses import dataclass
from typing import Any, Final

from hami_dra.yaml_edit.anchors import Anchors
from hami_dra.yaml_edit.flow import FlowEditor
from hami_dra.yaml_edit.merge import change_of
from hami_dra.yaml_edit.node import Alias, Mapping, Node, Scalar, Sequence
from hami_dra.yaml_edit.problem import EditError
from hami_dra.yaml_edit.same import same, steps
from hami_dra.yaml_edit.style import Layout, Lines
from hami_dra.yaml_edit.value import Reader
from hami_dra.yaml_edit.write import FlowStyle, block_lines, inline, item_lines, pair_lines

_SPACE: Final = re.compile(r"(?:\s|#[^\r\n]*)*")


@dataclass(frozen=True, slots=True)
class Splice:
    """Text that takes the place of another."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a value stands in a block.

    Attributes:
        after: the position after the colon or dash that it belongs to; -1 for the root.
        column: of its key or dash.
        is_item: whether it is a member of a list.
    """

    after: int
    column: int
    is_item: bool


class BlockEditor:
    """Collects the splices that make a document say something else."""

    def __init__(self, lines: Lines, layout: Layout, anchors: Anchors, reader: Reader) -> None:
        self._lines = lines
        self._text = lines.text
        self._layout = layout
        self._anchors = anchors
        self._reader = reader
        self._flow = FlowEditor(lines, anchors, reader)
        self._style = FlowStyle(line_break=lines.break_)
        self.splices: list[Splice] = []

    def edit_root(self, node: Node, after: Any) -> None:  # noqa: ANN401 - any JSON
        """Make the document's root say what it should."""
        self._edit(node, after, _Slot(-1, 0, is_item=False))

    def _edit(self, node: Node, after: Any, slot: _Slot) -> None:  # noqa: ANN401 - any JSON
        if isinstance(node, Alias):
            if not self._anchors.keeps(node, after):
                self._replace(node, after, slot)
            return
        before = self._reader.value(node)
        if same(before, after) and not self._anchors.touches(node):
            return
        if isinstance(node, Mapping) and isinstance(after, dict) and self._fits(node, after):
            self._mapping(node, after)
            self._anchors.visit(node, after)
        elif isinstance(node, Sequence) and isinstance(after, list) and self._fits(node, after):
            self._sequence(node, before, after)
            self._anchors.visit(node, after)
        else:
            self._anchors.drop(node)
            self._replace(node, after, slot)

    def _fits(self, node: Mapping | Sequence, after: Any) -> bool:  # noqa: ANN401 - any JSON
        """Tell whether a node can stay the kind of node that it is.

        A block cannot become empty, and empty brackets in a block become a block.
        """
        if node.flow:
            return bool(node.pairs if isinstance(node, Mapping) else node.items)
        return bool(after)

    def _mapping(self, node: Mapping, after: dict[str, Any]) -> None:
        if node.flow:
            self._splice_flow(node, after)
            return
        change = change_of(node, after, self._anchors, self._reader)
        column = self._lines.column(node.pairs[0].key.start)
        for pair, key, keeps in zip(node.pairs, change.keys, change.keeps, strict=True):
            if not keeps:
                self._anchors.drop(pair.value)
            elif key is not None:
                after_colon = self._lines.colon(pair)
                self._edit(pair.value, after[key], _Slot(after_colon, column, is_item=False))
        added = self._pairs(change.added, column)
        spans = [(pair.key.start, pair.end) for pair in node.pairs]
        self._settle(spans, change.keeps, added)

    def _splice_flow(self, node: Mapping | Sequence, after: Any) -> None:  # noqa: ANN401
        text = self._flow.edited(node, after, self._style)
        self.splices.append(Splice(node.start, node.end, text))

    def _pairs(self, added: dict[str, Any], column: int) -> list[str]:
        return [
            line
            for key, value in added.items()
            for line in pair_lines(key, value, column, self._layout)
        ]

    def _settle(self, spans: list[tuple[int, int]], keeps: list[bool], added: list[str]) -> None:
        """Remove the members of a block that go, and put lines behind those that stay.

        Args:
            spans: start and end of each member.
            keeps: whether it stays.
            added: the lines of those that come.
        """
        if not any(keeps):
            self._swap(spans[0][0], spans[-1][1], added)
            return
        column = self._lines.column(spans[0][0])
        first = keeps.index(True)
        is_compact = not self._lines.is_first(spans[0][0])
        if first and is_compact:
            self._pull_up(spans[0][0], spans[first - 1][1], spans[first][0])
        for index, (start, end) in enumerate(spans):
            if not keeps[index] and not (is_compact and index < first):
                self._remove_lines(start, end)
        if added:
            last = max(index for index, stays in enumerate(keeps) if stays)
            self._insert(self._lines.after_block(spans[last][1], column), added)

    def _swap(self, start: int, end: int, lines: list[str]) -> None:
        """Put lines in the place of a whole block whose first line they continue."""
        stop = self._lines.after_block(end, self._lines.column(start))
        text = self._lines.break_.join(lines).lstrip(" ") + self._lines.break_
        self.splices.append(Splice(start, stop, text))

    def _pull_up(self, start: int, end: int, next_: int) -> None:
        """Remove what follows a dash, and put the next member there."""
        behind = self._lines.next(end)
        if self._lines.start(next_) == behind:
            self.splices.append(Splice(start, next_, ""))
        else:  # comments in between belong to the next member, and cannot follow a dash
            self.splices.append(Splice(start, self._lines.end(end), ""))

    def _remove_lines(self, start: int, end: int) -> None:
        """Remove the lines of a member, with the comments that belong to it."""
        first = self._lines.before_block(start)
        last = self._lines.after_block(end, self._lines.column(start))
        self.splices.append(Splice(first, last, ""))

    def _insert(self, at: int, lines: list[str]) -> None:
        """Insert whole lines where a line starts."""
        break_ = self._lines.break_
        self.splices.append(Splice(at, at, "".join(line + break_ for line in lines)))

    def _sequence(self, node: Sequence, before: list[Any], after: list[Any]) -> None:
        if node.flow:
            self._splice_flow(node, after)
            return
        dashes = self._dashes(node)
        column = self._lines.column(dashes[0])
        keeps, added = [False] * len(dashes), list[str]()
        for old, new in steps(before, after):
            if old is None:
                added += item_lines(after[new or 0], column, self._layout)
            elif new is None:
                self._anchors.drop(node.items[old])
            else:
                keeps[old] = True
                slot = _Slot(dashes[old] + 1, column, is_item=True)
                self._edit(node.items[old], after[new], slot)
        ends = [max(i.end, d + 1) for i, d in zip(node.items, dashes, strict=True)]
        self._settle(list(zip(dashes, ends, strict=True)), keeps, added)

    def _dashes(self, node: Sequence) -> list[int]:
        found, at = list[int](), node.content
        for item in node.items:
            match = _SPACE.match(self._text, at)
            at = match.end() if match else at
            if self._text[at : at + 1] != "-":
                raise self._cannot(at, "this list")
            found.append(at)
            at = max(item.end, at + 1)
        return found

    def _replace(self, node: Node, after: Any, slot: _Slot) -> None:  # noqa: ANN401 - any JSON
        """Write a value anew."""
        if slot.after < 0:
            raise self._cannot(node.start, "what is not an object")
        is_block = not isinstance(node, Scalar | Alias) and not node.flow
        if not (isinstance(after, dict | list) and after):
            self._replace_inline(node, inline(after), slot, is_block=is_block)
            return
        if slot.is_item:
            self._replace_item(node, after, slot)
            return
        lines = list(block_lines(after, self._below(slot, after), self._layout))
        if is_block:
            self._remove_lines(node.start, node.end)
            at = self._lines.next(slot.after)
        else:
            self.splices.append(Splice(slot.after, max(node.end, slot.after), ""))
            at = self._lines.next(max(node.end, slot.after))
        self._insert(at, lines)

    def _replace_item(self, node: Node, after: Any, slot: _Slot) -> None:  # noqa: ANN401
        """Write a member of a list anew, as a block that starts behind its dash."""
        is_written = node.end > node.start
        start, end = (node.start, node.end) if is_written else (slot.after, slot.after)
        column = self._lines.column(start) + (0 if is_written else 1)
        text = self._lines.break_.join(block_lines(after, column, self._layout)).lstrip(" ")
        self.splices.append(Splice(start, end, text if is_written else f" {text}"))

    def _below(self, slot: _Slot, after: Any) -> int:  # noqa: ANN401 - any JSON
        inner = self._layout.step if isinstance(after, dict) else self._layout.offset
        return slot.column + inner

    def _replace_inline(self, node: Node, text: str, slot: _Slot, *, is_block: bool) -> None:
        is_below = self._lines.start(node.start) > slot.after
        if is_block and is_below:
            self.splices.append(Splice(slot.after, slot.after, f" {text}"))
            self._remove_lines(node.start, node.end)
        elif node.end <= slot.after:
            self.splices.append(Splice(slot.after, slot.after, f" {text}"))
        else:
            self.splices.append(Splice(node.start, node.end, text))

    def _cannot(self, at: int, what: str) -> EditError:
        line = self._text.count("\n", 0, at) + 1
        return EditError(f"line {line}: {what} cannot be changed in place")
