"""Edit what stands in braces and brackets: members keep their text, and the gaps between them too.

A gap holds the comma, white space and comments: those behind a member up to the line's end belong
to it, those on lines of their own to the next one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from hami_dra.yaml_edit.anchors import Anchors
from hami_dra.yaml_edit.merge import change_of
from hami_dra.yaml_edit.node import Alias, Mapping, Node, Pair, Sequence
from hami_dra.yaml_edit.problem import EditError
from hami_dra.yaml_edit.same import same, steps
from hami_dra.yaml_edit.scalar import written
from hami_dra.yaml_edit.style import Lines
from hami_dra.yaml_edit.value import Reader
from hami_dra.yaml_edit.write import FlowStyle, flow

_COMMA: Final = re.compile(r"(?:\s|#[^\r\n]*)*?(,)")
_LAST_LINE: Final = re.compile(r"\r?\n[ \t]*\Z")


@dataclass(slots=True)
class _Member:
    """What becomes of a member: its text, or None when it goes."""

    start: int
    end: int
    text: str | None


class FlowEditor:
    """Gives the new text of flow nodes."""

    def __init__(self, lines: Lines, anchors: Anchors, reader: Reader) -> None:
        self._lines = lines
        self._text = lines.text
        self._anchors = anchors
        self._reader = reader

    def edited(self, node: Node, after: Any, around: FlowStyle) -> str:  # noqa: ANN401
        """Return the text of a node that should say something else.

        Args:
            node: the node.
            after: what it should say.
            around: how members are written where it stands.
        """
        if isinstance(node, Alias):
            if self._anchors.keeps(node, after):
                return self._text[node.start : node.end]
            return self._anew(node, after, around)
        before = self._reader.value(node)
        if same(before, after) and not self._anchors.touches(node):
            return self._text[node.start : node.end]
        if isinstance(node, Mapping) and isinstance(after, dict):
            return self._mapping(node, after, around)
        if isinstance(node, Sequence) and isinstance(after, list):
            return self._sequence(node, before, after, around)
        self._anchors.drop(node)
        return self._anew(node, after, around)

    def _anew(self, node: Node, after: Any, style: FlowStyle) -> str:  # noqa: ANN401
        return flow(after, style, self._lines.indent(node.start))

    def _mapping(self, node: Mapping, after: dict[str, Any], around: FlowStyle) -> str:
        style = self._style(node, [pair.key for pair in node.pairs], around)
        change = change_of(node, after, self._anchors, self._reader)
        members = []
        for pair, key, keeps in zip(node.pairs, change.keys, change.keeps, strict=True):
            text = None
            if key is None and keeps:
                text = self._text[pair.key.start : pair.end]
            elif key is not None and keeps:
                text = self._pair(pair, after[key], style)
            else:
                self._anchors.drop(pair.value)
            members.append(_Member(pair.key.start, pair.end, text))
        # Merges are decided by what anchors said before; so is a member's own anchor.
        self._anchors.visit(node, after)
        return self._rebuilt(
            node,
            members,
            lambda indent: [
                f"{written(key, as_json=style.as_json)}{style.colon}{flow(value, style, indent)}"
                for key, value in change.added.items()
            ],
            style,
        )

    def _pair(self, pair: Pair, after: Any, style: FlowStyle) -> str:  # noqa: ANN401
        text = self.edited(pair.value, after, style)
        if pair.value.start == pair.key.end and text:
            return self._text[pair.key.start : pair.key.end] + style.colon + text
        between = self._text[pair.key.start : pair.value.start]
        return between + (" " if between.endswith(":") and not style.as_json else "") + text

    def _sequence(
        self, node: Sequence, before: list[Any], after: list[Any], around: FlowStyle
    ) -> str:
        style = self._style(node, [], around)
        members: list[_Member] = []
        added: list[Any] = []
        for old, new in steps(before, after):
            if old is None:
                added.append(after[new or 0])
                continue
            item = node.items[old]
            text = None if new is None else self.edited(item, after[new], style)
            if new is None:
                self._anchors.drop(item)
            members.append(_Member(item.start, item.end, text))
        self._anchors.visit(node, after)
        return self._rebuilt(
            node, members, lambda indent: [flow(each, style, indent) for each in added], style
        )

    def _style(self, node: Mapping | Sequence, keys: list[Node], around: FlowStyle) -> FlowStyle:
        """Return how a node's own members are written; an empty one's as around it."""
        members = [pair.key for pair in node.pairs] if isinstance(node, Mapping) else node.items
        if not members:
            return around
        own = ""
        if "\n" in self._text[node.content : members[0].start]:
            inner, outer = self._lines.indent(members[0].start), self._lines.indent(node.content)
            own = inner.removeprefix(outer) or around.unit or "  "
        style = replace(around, unit=own)
        if len(members) > 1 and not own:
            first_end = node.pairs[0].end if isinstance(node, Mapping) else members[0].end
            gap = self._text[first_end : members[1].start]
            style = replace(style, comma=gap if gap.strip() == "," else ", ")
        if keys and isinstance(node, Mapping):
            value = node.pairs[0].value
            colon = self._text[node.pairs[0].key.end : value.start]
            as_json = self._text[keys[0].start] == '"'
            style = replace(style, as_json=as_json, colon=colon if colon.strip() == ":" else ": ")
            if not as_json and style.colon.strip() == style.colon:
                style = replace(style, colon=": ")
            if len(members) == 1 and style.colon == ":":
                style = replace(style, comma=",")
        return style

    def _rebuilt(
        self,
        node: Mapping | Sequence,
        members: list[_Member],
        added: Callable[[str], list[str]],
        style: FlowStyle,
    ) -> str:
        """Put a node together again from its members and the gaps between them."""
        text, head = self._text, self._text[node.start : node.content]
        open_, close = text[node.content], text[node.end - 1]
        if open_ not in "{[" or close not in "}]":
            line = text.count("\n", 0, node.start) + 1
            raise EditError(f"line {line}: a pair without braces cannot be changed in place")
        edges = [node.content + 1, *(p for m in members for p in (m.start, m.end)), node.end - 1]
        gaps = [text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)]
        kept, gaps = _without_gone(members, gaps)
        indent = self._lines.indent(node.content)
        inner = indent + style.unit
        new = added(inner)
        if not kept:
            return head + open_ + _only(new, gaps, style, indent) + close
        if new:
            gaps[-1] = _appended(new, gaps[-1], style, inner)
        body = gaps[0] + "".join(m + g for m, g in zip(kept, gaps[1:], strict=True))
        return head + open_ + body + close


def _only(new: list[str], gaps: list[str], style: FlowStyle, indent: str) -> str:
    """Return what stands between brackets that hold none of their old members."""
    if not new:
        return ""
    if style.unit:
        inner = f"{style.line_break}{indent}{style.unit}"
        return inner + f",{inner}".join(new) + f"{style.line_break}{indent}"
    padding = gaps[0] if not gaps[0].strip(" ") else ""
    return padding + style.comma.join(new) + padding


def _appended(new: list[str], last: str, style: FlowStyle, inner: str) -> str:
    """Return the last gap with members put into it; comments of the member before stay its."""
    has_comma = _COMMA.match(last) is not None
    joined = (f",{style.line_break}{inner}" if style.unit else style.comma).join(new)
    closing = _LAST_LINE.search(last)
    if not style.unit or closing is None:
        return style.comma + joined + last
    before = last[: closing.start()] if has_comma else "," + last[: closing.start()]
    return f"{before}{style.line_break}{inner}{joined}{',' if has_comma else ''}{closing.group()}"


def _without_gone(members: list[_Member], gaps: list[str]) -> tuple[list[str], list[str]]:
    """Return the texts of the members that stay, and the gaps around them."""
    had_comma = _COMMA.match(gaps[-1]) is not None
    kept: list[str] = []
    left = [gaps[0]]
    for index, member in enumerate(members):
        right = gaps[index + 1]
        if member.text is None:
            is_first, is_last = not kept, index + 1 == len(members)
            left[-1] = _merged(left[-1], right, is_first=is_first, is_last=is_last)
        else:
            kept.append(member.text)
            left.append(right)
    for index, gap in enumerate(left):
        is_inner = 0 < index < len(left) - 1
        wants = is_inner or (index > 0 and had_comma)
        left[index] = _with_comma(gap) if wants else _without_comma(gap)
    return kept, left


def _merged(left: str, right: str, *, is_first: bool, is_last: bool) -> str:
    """Return the gap that remains where the member between two gaps is gone."""
    left_break, right_break = left.find("\n"), right.find("\n")
    if right_break >= 0:
        if left_break >= 0:
            return left[: left_break + 1] + right[right_break + 1 :]
        start = right_break - (right[right_break - 1 : right_break] == "\r")
        return right[start:]
    if left_break >= 0 or is_first:
        return left
    return right if is_last else left


def _with_comma(gap: str) -> str:
    return gap if _COMMA.match(gap) else "," + gap


def _without_comma(gap: str) -> str:
    match = _COMMA.match(gap)
    return gap[: match.start(1)] + gap[match.end(1) :] if match else gap
