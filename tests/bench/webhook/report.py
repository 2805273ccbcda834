"""What the benchmark prints at the end: ratios first, figures beside them."""

from collections.abc import Iterable, Sequence
from typing import Final

from tests.bench.webhook.end_to_end import Outcome
from tests.bench.webhook.rounds import Entrant, Sample

_MILLISECOND: Final = 1000
_HEAD: Final = (
    *(
        "",
        "ours is",
        "reviews/s",
        "from - to",
        "p50 ms",
        "p99 ms",
        "CPU us/review",
        "RSS MiB",
        "others",
    ),
)
_PODS_HEAD: Final = (
    *("controller-manager", "ratio", "webhook pods/s", "from - to"),
    *("by hand pods/s", "from - to"),
)


def service(ours: Entrant, entrants: Iterable[Entrant]) -> str:
    """Return the table of entrants, ours beside every other.

    `others` is the share of the machine that neither server nor load generator had.
    """
    rate = ours.median(_rate)
    rows = [
        (
            one.name,
            "" if one.server is ours.server else f"{rate / one.median(_rate):.2f}x",
            f"{one.median(_rate):.0f}",
            _span([sample.rate for sample in one.samples], 0),
            f"{one.median(lambda sample: sample.p50) / _MILLISECOND:.2f}",
            f"{one.median(lambda sample: sample.p99) / _MILLISECOND:.2f}",
            f"{one.median(lambda sample: sample.cpu):.0f}",
            f"{one.memory_mib[-1]:.0f}",
            f"{one.median(lambda sample: sample.others):.0%}",
        )
        for one in entrants
    ]
    return table(_HEAD, rows)


def end_to_end(outcomes: Iterable[Outcome]) -> str:
    """Return the table of pods scheduled a second."""
    rows = [
        (
            f"{one.limits.qps}/{one.limits.burst}",
            f"{one.ratio:.2f}x",
            f"{sorted(one.legacy)[len(one.legacy) // 2]:.1f}",
            _span(one.legacy, 1),
            f"{sorted(one.by_hand)[len(one.by_hand) // 2]:.1f}",
            _span(one.by_hand, 1),
        )
        for one in outcomes
    ]
    return table(_PODS_HEAD, rows)


def memory(found: Sequence[tuple[int, float]]) -> str:
    """Return resident memory by reviews answered."""
    rows = [(f"{reviews}", f"{mib:.1f}") for reviews, mib in found]
    return table(("reviews", "RSS MiB"), rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns: the first to the left, figures to the right."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _rate(sample: Sample) -> float:
    return sample.rate


def _span(found: Sequence[float], digits: int) -> str:
    return f"{min(found):.{digits}f} - {max(found):.{digits}f}"
