"""What a fact is: something that must be so, what was found instead, and the command for it. Pure.

Every fact has a row in .github/PREFLIGHT.md.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from hami_dra.migration import Policy
from hami_dra.preflight.evidence import Evidence, HiddenError


class Status(StrEnum):
    """How a fact stands."""

    PASS = "pass"  # noqa: S105 - a verdict
    WARN = "warn"
    """Works, but not as somebody may expect."""
    FAIL = "fail"
    """GPU pods will not run, or not within their shares."""
    UNKNOWN = "unknown"
    """It could not be read, so nothing is said; never the same as a pass."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge says.

    Attributes:
        status: how the fact stands.
        found: what there is.
        expected: what there should be; empty when the fact passes.
        fix: what to do, a command where one does it; empty when the fact passes.
    """

    status: Status
    found: str
    expected: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A fact before it is judged.

    Attributes:
        id: stable, for machines and for the documentation.
        title: what must be so.
        judge: decides.
    """

    id: str
    title: str
    judge: Callable[[Evidence, Policy], Verdict]


@dataclass(frozen=True, slots=True)
class Fact:
    """A judged fact; see `Check` and `Verdict`."""

    id: str
    title: str
    status: Status
    found: str
    expected: str
    fix: str


def passed(found: str) -> Verdict:
    """Say that all is well."""
    return Verdict(Status.PASS, found)


def warned(found: str, *, expected: str, fix: str) -> Verdict:
    """Say that it works, but not as somebody may expect."""
    return Verdict(Status.WARN, found, expected, fix)


def failed(found: str, *, expected: str, fix: str) -> Verdict:
    """Say that GPU pods will not run, or not within their shares."""
    return Verdict(Status.FAIL, found, expected, fix)


def judge_each(checks: Iterable[Check], evidence: Evidence, policy: Policy) -> Iterator[Fact]:
    """Judge facts in order; what could not be read is unknown."""
    for check in checks:
        try:
            said = check.judge(evidence, policy)
        except HiddenError as hidden:
            said = Verdict(
                Status.UNKNOWN, str(hidden), "a readable answer", "ask with an account that may"
            )
        yield Fact(check.id, check.title, said.status, said.found, said.expected, said.fix)


def names(found: Iterable[str], *, most: int = 5) -> str:
    """List names, but not thousands of them."""
    listed = sorted(set(found))
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")
