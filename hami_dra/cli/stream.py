"""A stream of documents: what stands between them, what is in them, and what is said of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hami_dra.cli.kinds import Workload
from hami_dra.cli.render import RoundTrip, UnparsableError
from hami_dra.cli.sources import Document, UnreadableError


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        where: file and line of the document.
        workload: `Kind/name`.
        pod_path: where its pod stands in the document; empty for a pod.
        text: what a person should know.
        rejected: why the document was passed through unchanged, such as `not converted`; empty for
            a mere notice.
    """

    where: str
    workload: str
    pod_path: str
    text: str
    rejected: str = ""

    def __str__(self) -> str:
        """Render as one line."""
        verb = f"{self.rejected}: " if self.rejected else ""
        within = f" (in {self.pod_path})" if self.pod_path else ""
        return f"{self.where}: {self.workload}{within}: {verb}{self.text}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a stream of documents.

    Attributes:
        output: the documents as written, changed where they had to be.
        findings: notices and rejections, in the order of the documents.
        changed: how many workloads changed.
    """

    output: str
    findings: tuple[Finding, ...]
    changed: int

    @property
    def rejected(self) -> int:
        """Return how many workloads could not be dealt with."""
        return sum(bool(finding.rejected) for finding in self.findings)


def parsed(document: Document) -> RoundTrip:
    """Parse a document.

    Raises:
        UnreadableError: if it is neither YAML nor JSON.
    """
    try:
        return RoundTrip(document.text)
    except UnparsableError as error:
        message = f"{document.source}: document at line {document.line}: {error}"
        raise UnreadableError(message) from error


def notes(document: Document, workload: Workload) -> Callable[..., Finding]:
    """Return a writer of findings on one workload."""
    return partial(Finding, f"{document.source}:{document.line}", workload.title, workload.path)


def separated(before: str, lead: str) -> str:
    """Return what separates a document from those before, as written or, between files, ours."""
    if not before:
        return lead
    line_end = "" if before.endswith("\n") else "\n"
    return line_end + (lead or "---\n")
