"""Bars in SVG: what becomes of the workloads of each namespace, and memory before and after.

Every bar has its numbers beside it, so neither colours nor sizes are needed to read it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from hami_dra.cli.auditing.findings import Outcome, Summary
from hami_dra.cli.auditing.text import number
from hami_dra.markup import Markup, element, joined

_NAMES, _BAR, _NUMBERS = 190, 320, 420
_WIDTH: Final = _NAMES + _BAR + _NUMBERS
_ROW, _THICK, _THIN = 30, 18, 9
_LONGEST_NAME: Final = 24


def outcomes(namespaces: Sequence[Summary]) -> Markup:
    """Draw a stacked bar for each namespace."""
    most = max(each.workloads for each in namespaces)
    rows = [_outcomes(each, most, at * _ROW) for at, each in enumerate(namespaces)]
    title = "Workloads of each namespace by what becomes of them"
    return joined(_legend(namespaces), _drawing(title, rows))


def memory(namespaces: Sequence[Summary]) -> Markup:
    """Draw two bars for each namespace: what was asked for, and what claims take."""
    pairs = [(each.before.memory_mib or 0, each.after.memory_mib or 0) for each in namespaces]
    most = max(max(pair) for pair in pairs) or 1
    rows = [_memory(each, most, at * _ROW) for at, each in enumerate(namespaces)]
    return _drawing("Memory of each namespace in MiB, before and after", rows)


def _drawing(title: str, rows: Sequence[Markup]) -> Markup:
    height = max(1, len(rows)) * _ROW
    drawing = element(
        "svg",
        element("title", title),
        joined(*rows),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        role="img",
        aria_label=title,
    )
    return element("div", drawing, class_="scrolls")


def _legend(namespaces: Sequence[Summary]) -> Markup:
    used = [o for o in Outcome if any(each.counts[o] for each in namespaces)]
    marks = (
        element("li", element("span", "", class_=f"mark {outcome.value}"), f" {outcome.text}")
        for outcome in used
    )
    return element("ul", *marks, class_="legend")


def _outcomes(summary: Summary, most: int, top: int) -> Markup:
    said = [outcome.counted(count) for outcome in Outcome if (count := summary.counts[outcome])]
    return element(
        "g",
        _label(summary.name, 0, top, "name"),
        *_segments(summary, most, top),
        _label(", ".join(said), _NAMES + _BAR * summary.workloads // most + 8, top, "said"),
    )


def _segments(summary: Summary, most: int, top: int) -> Iterator[Markup]:
    left = 0
    for outcome in Outcome:
        right = left + summary.counts[outcome]
        start, end = (_NAMES + _BAR * each // most for each in (left, right))
        if end > start:
            yield _bar(start, top + (_ROW - _THICK) // 2, end - start, _THICK, outcome.value)
        left = right


def _memory(summary: Summary, most: int, top: int) -> Markup:
    found = (summary.before.memory_mib, summary.after.memory_mib)
    widths = [_BAR * (each or 0) // most for each in found]
    said = f"{number(found[0])} → {number(found[1])}"
    return element(
        "g",
        _label(summary.name, 0, top, "name"),
        _bar(_NAMES, top + _ROW // 2 - _THIN - 1, widths[0], _THIN, "before"),
        _bar(_NAMES, top + _ROW // 2 + 1, widths[1], _THIN, "after"),
        _label(said, _NAMES + max(widths) + 8, top, "said"),
    )


def _bar(left: int, top: int, width: int, height: int, colour: str) -> Markup:
    return element("rect", x=left, y=top, width=width, height=height, class_=colour)


def _label(text: str, left: int, top: int, kind: str) -> Markup:
    short = (
        text if kind != "name" or len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"
    )
    return element("text", short, x=left, y=top + _ROW // 2 + 5, class_=kind)
