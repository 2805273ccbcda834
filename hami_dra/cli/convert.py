"""Convert: apply to manifests the very patch that the webhook would send for their pods."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import jsonpatch

from hami_dra.cli.kinds import Workload, workloads
from hami_dra.cli.render import RoundTrip, UnparsableError, manifest, plain
from hami_dra.cli.sources import Document, UnreadableError
from hami_dra.migration import Cards, Migration, Policy, RejectedPod, migrate


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        where: file and line of the document.
        workload: `Kind/name`.
        pod_path: where its pod stands in the document; empty for a pod.
        text: what a person should know.
        rejected: whether it is why the document was passed through unchanged.
    """

    where: str
    workload: str
    pod_path: str
    text: str
    rejected: bool = False

    def __str__(self) -> str:
        """Render as one line."""
        verb = "not converted: " if self.rejected else ""
        within = f" (in {self.pod_path})" if self.pod_path else ""
        return f"{self.where}: {self.workload}{within}: {verb}{self.text}"


@dataclass(frozen=True, slots=True)
class Conversion:
    """What became of some documents.

    Attributes:
        output: the documents as written, changed where they had to be, each template before the
            first document that needs it (ruling 44).
        findings: notices and rejections, in the order of the documents.
        converted: how many workloads changed.
    """

    output: str
    findings: tuple[Finding, ...]
    converted: int

    @property
    def rejected(self) -> int:
        """Return how many workloads could not be converted."""
        return sum(finding.rejected for finding in self.findings)


def convert(documents: Iterable[Document], policy: Policy, cards: Cards) -> Conversion:
    """Convert documents; those without legacy keys stay byte-identical.

    Raises:
        UnreadableError: if one is neither YAML nor JSON.
    """
    written: set[tuple[str, str]] = set()
    output, findings, converted = "", list[Finding](), 0
    for document in documents:
        parsed = _parse(document)
        migrations, found = _migrate_all(parsed, document, policy, cards)
        output += _separated(output, document.lead)
        for workload, migration in migrations:
            output += _templates(workload, migration, written)
            # jsonpatch edits the round-trip nodes in place, so comments and order survive.
            jsonpatch.apply_patch(workload.pod, migration.patch, in_place=True)
        output += parsed.dump() if migrations else document.text
        findings += found
        converted += len(migrations)
    return Conversion(output, tuple(findings), converted)


def _parse(document: Document) -> RoundTrip:
    try:
        return RoundTrip(document.text)
    except UnparsableError as error:
        message = f"{document.source}: document at line {document.line}: {error}"
        raise UnreadableError(message) from error


def _migrate_all(
    parsed: RoundTrip, document: Document, policy: Policy, cards: Cards
) -> tuple[list[tuple[Workload, Migration]], list[Finding]]:
    """Migrate the workloads of a document, all or none: a document is not half converted."""
    migrations, findings = [], []
    for workload in workloads(parsed.root):
        note = _notes(document, workload)
        try:
            migration = migrate(plain(workload.pod), policy, cards)
        except RejectedPod as rejected:
            findings.append(note(str(rejected), rejected=True))
            continue
        findings += [note(str(notice)) for notice in migration.notices]
        if migration.patch:
            migrations.append((workload, migration))
    return ([] if any(each.rejected for each in findings) else migrations), findings


def _notes(document: Document, workload: Workload) -> Callable[..., Finding]:
    """Return a writer of findings on one workload."""
    return partial(Finding, f"{document.source}:{document.line}", workload.title, workload.path)


def _separated(before: str, lead: str) -> str:
    """Return what separates a document from those before, as written or, between files, ours."""
    if not before:
        return lead
    line_end = "" if before.endswith("\n") else "\n"
    return line_end + (lead or "---\n")


def _templates(workload: Workload, migration: Migration, written: set[tuple[str, str]]) -> str:
    """Render the templates that a workload needs and that were not written before."""
    text = ""
    for template in migration.templates:
        key = (workload.namespace, template.name)
        if key not in written:
            written.add(key)
            text += f"{manifest(template.manifest(workload.namespace or None))}---\n"
    return text
