"""What a run found, for people and for machines: an entry for each object of note."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hami_dra.cli.table import table
from hami_dra.migration import Json


class Result(StrEnum):
    """What became of an object."""

    CHANGED = "changed"
    """It was converted or reverted."""
    UNCHANGED = "unchanged"
    """It need not change, but there is something to tell."""
    REJECTED = "rejected"
    """It could not be dealt with, and was passed through as it was."""
    REFUSED = "refused"
    """It was converted, and refused by whoever was asked to check the result."""


class ReportFormat(StrEnum):
    """How a report is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that a person should know.

    Attributes:
        text: one line.
        code: stable, for filters; empty for none.
        path: the field that it speaks of; empty where the text says it.
    """

    text: str
    code: str = ""
    path: str = ""

    def __str__(self) -> str:
        """Render as one line."""
        return ": ".join(part for part in (self.code, self.path, self.text) if part)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said of one object.

    Attributes:
        source: the input.
        line: of the document.
        title: `Kind/name`.
        result: what became of it.
        namespace: empty where none is named.
        pod_path: where its pod stands in the document; empty for a pod.
        reason: why it was passed through unchanged, with the verb.
        remarks: notices.
        templates: names of the templates that it needs.
    """

    source: str
    line: int
    title: str
    result: Result
    namespace: str = ""
    pod_path: str = ""
    reason: str = ""
    remarks: tuple[Remark, ...] = ()
    templates: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Return what standard error tells of it, line by line."""
        within = f" (in {self.pod_path})" if self.pod_path else ""
        head = f"{self.source}:{self.line}: {self.title}{within}: "
        told = [head + str(remark) for remark in self.remarks]
        return [*told, head + self.reason] if self.reason else told

    def as_json(self) -> Json:
        """Return it for machines."""
        fields: Json = {
            "file": self.source,
            "line": self.line,
            "object": self.title,
            "namespace": self.namespace,
            "podPath": self.pod_path,
            "result": self.result.value,
            "reason": self.reason,
            "templates": list(self.templates),
            "notices": [
                {"code": each.code, "path": each.path, "message": each.text}
                for each in self.remarks
            ],
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(slots=True)
class Report:
    """What a run found.

    Attributes:
        files: how many inputs were read.
        entries: in the order of the documents.
        errors: inputs that could not be read, each with its reason.
    """

    files: int = 0
    entries: list[Entry] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def count(self, result: Result) -> int:
        """Return how many objects had this result."""
        return sum(entry.result is result for entry in self.entries)

    @property
    def has_remarks(self) -> bool:
        """Tell whether any object has a notice."""
        return any(entry.remarks for entry in self.entries)

    def as_json(self) -> Json:
        """Return it for machines."""
        return {
            "files": self.files,
            "changed": self.count(Result.CHANGED),
            "rejected": self.count(Result.REJECTED),
            **({"refused": refused} if (refused := self.count(Result.REFUSED)) else {}),
            "errors": self.errors,
            "objects": [entry.as_json() for entry in self.entries],
        }


_HEAD: Final = ("WHERE", "OBJECT", "RESULT", "WHAT TO KNOW")


def rendered(report: Report, format_: ReportFormat) -> str:
    """Return a report as text."""
    if format_ is ReportFormat.JSON:
        return json.dumps(report.as_json(), indent=2, ensure_ascii=False) + "\n"
    if format_ is ReportFormat.YAML:
        from hami_dra.yaml_edit import as_yaml  # noqa: PLC0415 - only here

        return as_yaml(report.as_json())
    rows = [_HEAD, *(row for entry in report.entries for row in _rows(entry))]
    summary = _summary(report)
    if format_ is ReportFormat.MARKDOWN:
        return f"{markdown(rows)}\n{summary}\n"
    return f"{table(rows)}{summary}\n"


def _rows(entry: Entry) -> list[tuple[str, str, str, str]]:
    told = [str(remark) for remark in entry.remarks]
    told += [entry.reason] if entry.reason else []
    first, *more = told or [""]
    head = (f"{entry.source}:{entry.line}", entry.title, entry.result.value)
    return [(*head, first), *(("", "", "", each) for each in more)]


def _summary(report: Report) -> str:
    counts = f"{report.count(Result.CHANGED)} changed, {report.count(Result.REJECTED)} rejected"
    refused = report.count(Result.REFUSED)
    counts += f", {refused} refused" if refused else ""
    errors = f", {len(report.errors)} unreadable" if report.errors else ""
    noun = "input" if report.files == 1 else "inputs"
    return f"{report.files} {noun}: {counts}{errors}"


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, of which the first is the head, as a table in Markdown."""
    head, *body = [[cell(each) for each in row] for row in rows]
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def cell(text: str) -> str:
    """Escape what would end a cell, or begin an element of HTML."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
