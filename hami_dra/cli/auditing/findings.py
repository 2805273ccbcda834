"""What an audit found, as data: the formats differ in nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Final

from hami_dra.cli.report import Remark
from hami_dra.migration import Json, Policy
from hami_dra.quota.amounts import Amounts, total


class Outcome(StrEnum):
    """What becomes of a workload; the value is for machines."""

    CONVERTS = "converts"
    """Its pods become pods with claims, and nobody needs to do anything."""
    WEBHOOK = "webhook"
    """Its manifest stays as it is, and the webhook converts the pods that its controller makes."""
    PERSON = "person"
    """It converts with notices, or stays as it is: somebody should look."""
    REJECTED = "rejected"
    """Its pods would be refused."""
    CONVERTED = "converted"
    """It carries claims already."""

    @property
    def text(self) -> str:
        """Return it in words."""
        return _WORDS.get(self, (self.value, self.value))[0]

    def counted(self, count: int) -> str:
        """Return how many workloads have it, in words."""
        return f"{count} {_WORDS.get(self, (self.value, self.value))[count != 1]}"


_WORDS: Final = {
    Outcome.CONVERTS: ("converts", "convert"),
    Outcome.WEBHOOK: ("by webhook", "by webhook"),
    Outcome.PERSON: ("needs a person", "need a person"),
}
"""For one and for several."""


@dataclass(frozen=True, slots=True)
class Total:
    """What containers take or took of cards.

    Attributes:
        cards: shares of cards, each counted once.
        memory_mib: over all cards; None where a whole card of unknown size is among them.
        cores: over all cards, in percent of one card.
    """

    cards: int = 0
    memory_mib: int | None = 0
    cores: int = 0

    @staticmethod
    def of(amounts: Amounts, policy: Policy) -> "Total":
        """Add the resources of all vendors up."""
        names = [family.resources for family in policy.families]
        memory = [amounts.get(each.memory, 0) for each in names]
        return Total(
            cards=sum(amounts.get(each.count) or 0 for each in names),
            memory_mib=None if None in memory else sum(each or 0 for each in memory),
            cores=sum(amounts.get(each.cores) or 0 for each in names),
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one workload, or of one pod template of it.

    Attributes:
        namespace: where it is.
        title: `Kind/name`, with the place of the template where it is not the object itself.
        outcome: what becomes of it.
        copies: how many pods it wants at the same time.
        asked: what each container asks for in legacy words.
        reason: why it is rejected, or stays as it is; empty otherwise.
        notices: what to know of it.
        templates: names of the templates that it needs.
        before: what all copies ask for, by resource name.
        after: what their claims take.
    """

    namespace: str
    title: str
    outcome: Outcome
    copies: int = 1
    asked: tuple[str, ...] = ()
    reason: str = ""
    notices: tuple[Remark, ...] = ()
    templates: tuple[str, ...] = ()
    before: Amounts = field(default_factory=dict)
    after: Amounts = field(default_factory=dict)

    @property
    def pods(self) -> str:
        """Return how many pods it wants, for people; its controller's own kind may not tell."""
        return "-" if self.outcome is Outcome.WEBHOOK else str(self.copies)

    @property
    def told(self) -> tuple[str, ...]:
        """Return what to know of it, one line each."""
        return (*(str(each) for each in self.notices), *([self.reason] if self.reason else ()))


@dataclass(frozen=True, slots=True)
class Bound:
    """An object that limits or counts resources which converted pods no longer carry.

    Attributes:
        namespace: where it is; empty for the cluster.
        title: `Kind/name`.
        says: what of it names managed resources.
        becomes: what becomes of that.
        fix: what to do; empty for nothing.
    """

    namespace: str
    title: str
    says: str
    becomes: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read.

    Attributes:
        what: the collection.
        why: the API server's words.
    """

    what: str
    why: str

    def __str__(self) -> str:
        """Render as one line."""
        return f"could not read {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Summary:
    """One namespace, or all of them, in numbers.

    Attributes:
        name: of the namespace; empty for all.
        counts: workloads by outcome, of which none is left out.
        before: what they ask for.
        after: what their claims take.
    """

    name: str
    counts: Mapping[Outcome, int]
    before: Total
    after: Total

    @property
    def workloads(self) -> int:
        """Return how many there are."""
        return sum(self.counts.values())

    @staticmethod
    def of(name: str, findings: Sequence[Finding], policy: Policy) -> "Summary":
        """Sum findings up."""
        return Summary(
            name=name,
            counts={o: sum(each.outcome is o for each in findings) for o in Outcome},
            before=Total.of(total(each.before for each in findings), policy),
            after=Total.of(total(each.after for each in findings), policy),
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that was found.

    Attributes:
        server: version of the cluster.
        scope: the namespace that was looked at; empty for all.
        command: the command line that shows it again.
        date: when it was made, as it is printed.
        everything: all namespaces in numbers.
        namespaces: each in numbers, by name.
        findings: by namespace and title.
        bounds: LimitRanges, quotas, queues and groups.
        unread: what could not be read.
    """

    server: str
    scope: str
    command: str
    date: str
    everything: Summary
    namespaces: tuple[Summary, ...]
    findings: tuple[Finding, ...]
    bounds: tuple[Bound, ...] = ()
    unread: tuple[Unread, ...] = ()

    def within(self, namespace: str) -> tuple[Finding, ...]:
        """Return the findings of a namespace."""
        return tuple(each for each in self.findings if each.namespace == namespace)

    @property
    def codes(self) -> dict[str, int]:
        """Return how many workloads have a notice of each code."""
        found: dict[str, int] = {}
        for each in self.findings:
            for code in {notice.code for notice in each.notices if notice.code}:
                found[code] = found.get(code, 0) + 1
        return dict(sorted(found.items()))

    def as_json(self) -> Json:
        """Return it for machines."""
        return {
            "server": self.server,
            "namespace": self.scope,
            "command": self.command,
            "date": self.date,
            "total": _plain(self.everything),
            "namespaces": [{"namespace": s.name, **_plain(s)} for s in self.namespaces],
            "workloads": [_workload(each) for each in self.findings],
            "bounds": [asdict(each) for each in self.bounds],
            "notices": self.codes,
            "unread": [asdict(each) for each in self.unread],
        }


def summaries(findings: Iterable[Finding], policy: Policy) -> tuple[Summary, ...]:
    """Sum up each namespace, in the order of their names."""
    by_name: dict[str, list[Finding]] = {}
    for each in findings:
        by_name.setdefault(each.namespace, []).append(each)
    return tuple(Summary.of(name, found, policy) for name, found in sorted(by_name.items()))


def _plain(summary: Summary) -> Json:
    return {
        "workloads": summary.workloads,
        "outcomes": {outcome.value: count for outcome, count in summary.counts.items()},
        "before": _total(summary.before),
        "after": _total(summary.after),
    }


def _total(found: Total) -> Json:
    return {"cards": found.cards, "memoryMiB": found.memory_mib, "cores": found.cores}


def _workload(each: Finding) -> Json:
    return {
        "namespace": each.namespace,
        "object": each.title,
        "outcome": each.outcome.value,
        "copies": each.copies,
        "asked": list(each.asked),
        "reason": each.reason,
        "notices": [{"code": n.code, "path": n.path, "message": n.text} for n in each.notices],
        "templates": list(each.templates),
        "before": dict(each.before),
        "after": dict(each.after),
    }
