"""An audit as text: aligned for terminals, and as Markdown for tickets."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final

from hami_dra.cli.auditing.findings import Audit, Bound, Finding, Summary, Total
from hami_dra.cli.report import cell, markdown
from hami_dra.cli.table import table
from hami_dra.plain import plain

_WORKLOADS: Final = ("NAMESPACE", "WORKLOAD", "COPIES", "RESULT", "ASKED")
_TOTALS: Final = ("NAMESPACE", "WORKLOADS", "CARDS", "MEMORY (MIB)", "CORES (%)")
_BOUNDS: Final = ("NAMESPACE", "OBJECT", "SAYS")
_WIDTH: Final = 100
_INDENT: Final = "    "


def as_table(audit: Audit) -> str:
    """Return it as aligned columns; what to know of a row stands below it."""
    parts = []
    if audit.findings:
        rows = [_workload(each) for each in audit.findings]
        parts.append(_with_notes(_WORKLOADS, rows, [each.told for each in audit.findings]))
        parts.append(table(_sums(audit)))
    if audit.bounds:
        rows = [_bound(each) for each in audit.bounds]
        parts.append(_with_notes(_BOUNDS, rows, [tuple(_told(each)) for each in audit.bounds]))
    return "\n".join([*parts, f"{headline(audit)}\n"])


def as_markdown(audit: Audit) -> str:
    """Return it as Markdown."""
    where = f"namespace {audit.scope}" if audit.scope else "all namespaces"
    parts = [
        f"# GPU sharing audit\n\n{cell(plain(f'{audit.server}, {where}, {audit.date}'))}\n",
        f"{headline(audit)}\n",
    ]
    if audit.unread:
        parts.append("".join(f"- {cell(plain(str(each)))}\n" for each in audit.unread))
    if audit.findings:
        rows = [(*_workload(each), plain("; ".join(each.told))) for each in audit.findings]
        parts += [markdown([(*_WORKLOADS, "WHAT TO KNOW"), *rows]), markdown(_sums(audit))]
    if audit.bounds:
        bounds = [
            (*_bound(each), plain(each.becomes), plain(each.fix) or "-") for each in audit.bounds
        ]
        parts.append(markdown([(*_BOUNDS, "BECOMES", "FIX"), *bounds]))
    return "\n".join(parts)


def headline(audit: Audit) -> str:
    """Return the whole in one line."""
    everything = audit.everything
    if not everything.workloads:
        what = "nothing that could be read" if audit.unread else "nothing"
        return f"{what} asks for a GPU in HAMi's words"
    said = [outcome.counted(count) for outcome, count in everything.counts.items() if count]
    workloads = "1 workload" if everything.workloads == 1 else f"{everything.workloads} workloads"
    return f"{workloads}: {', '.join(said)}"


def totals(before: Total, after: Total) -> tuple[str, str, str]:
    """Return how cards, memory and cores change."""
    return (
        _change(before.cards, after.cards),
        _change(before.memory_mib, after.memory_mib),
        _change(before.cores, after.cores),
    )


def number(amount: int | None) -> str:
    """Return a number for people, in groups of three digits."""
    return "unknown" if amount is None else f"{amount:,}".replace(",", " ")


def _change(before: int | None, after: int | None) -> str:
    """Return how a number changes; once where it does not."""
    return number(before) if before == after else f"{number(before)} → {number(after)}"


def _with_notes(
    head: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[Sequence[str]]
) -> str:
    """Align rows, and put the notes of each below it."""
    first, *lines = table([head, *rows]).splitlines()
    parts = [first]
    for line, told in zip(lines, notes, strict=True):
        parts += [line, *(wrapped for note in told for wrapped in _wrapped(plain(note)))]
    return "".join(f"{part}\n" for part in parts)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sums(audit: Audit) -> list[Sequence[str]]:
    several = len(audit.namespaces) > 1
    every = [*audit.namespaces, audit.everything] if several else audit.namespaces
    return [_TOTALS, *(_sum(each) for each in every)]


def _sum(summary: Summary) -> Sequence[str]:
    name = plain(summary.name) or "all"
    return name, str(summary.workloads), *totals(summary.before, summary.after)


def _workload(each: Finding) -> Sequence[str]:
    asked = plain("; ".join(each.asked)) or "-"
    return plain(each.namespace), plain(each.title), each.pods, each.outcome.text, asked


def _bound(each: Bound) -> Sequence[str]:
    return plain(each.namespace) or "-", plain(each.title), plain(each.says)


def _told(each: Bound) -> Iterator[str]:
    yield each.becomes
    if each.fix:
        yield f"fix: {each.fix}"
