"""Convert: apply to manifests the very patch that the webhook would send for their pods."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from hami_dra.cli.documents import Document, split
from hami_dra.cli.kustomize import named_in_patch, spellings
from hami_dra.cli.patching import patched
from hami_dra.cli.report import Entry, Remark, Result
from hami_dra.cli.scan import Scanner
from hami_dra.cli.sources import UnreadableError, as_text
from hami_dra.cli.templates import KIND, TemplateName, template_name
from hami_dra.cli.workloads import (
    Steps,
    Thing,
    Workload,
    named_in,
    things,
    unconverted,
    workloads,
)
from hami_dra.migration import Cards, Json, Migration, Policy, RejectedPod, migrate
from hami_dra.yaml_edit import Document as Parsed
from hami_dra.yaml_edit import EditError, as_yaml, edited

_REJECTED: Final = "not converted"
_PATCH: Final = (
    "a kustomization applies it as a patch, and half of what its pod asks for may stand in the"
    " base; convert what kustomize builds: hami-dra convert -k DIR"
)
_PATCHES: Final = (
    "patches {name} in another manifest; convert what kustomize builds: hami-dra convert -k DIR"
)


Located: TypeAlias = tuple[str, Json]
"""Where a document stood, as `file:line`, and what it says."""


@dataclass(slots=True)
class Converted:
    """What became of one input.

    Attributes:
        text: the new text; None when nothing changed.
        entries: what is to be said of its objects.
        documents: those that were changed or added, as they now are, for a dry run.
        templates: which ones were written into it.
    """

    text: str | None = None
    entries: list[Entry] = field(default_factory=list)
    documents: list[Located] = field(default_factory=list)
    templates: set[TemplateName] = field(default_factory=set)


class Converter:
    """Converts inputs one after the other; each template is written once (ruling 44).

    Args:
        policy: what a migration means.
        cards: what cards there are.
    """

    def __init__(self, policy: Policy, cards: Cards) -> None:
        self._policy = policy
        self._cards = cards
        self._names = frozenset(policy.managed_names)
        self._scanner = Scanner(each for name in self._names for each in spellings(name))
        self._written: set[TemplateName] = set()

    def note_templates(self, name: str, data: bytes) -> None:
        """Note the templates that an input holds, so that none is written a second time.

        An earlier conversion wrote them. Of several inputs this must be done with all before the
        first is converted: a new file can sort before the one that holds the template it needs.
        """
        if KIND.encode() not in data:
            return
        with suppress(UnreadableError):  # told when it is converted, if it has to be read for that
            for document in split(name, as_text(name, data)):
                self._note_template(document)

    def take_back(self, converted: Converted) -> None:
        """Forget the templates of an input that could not be written; the next one needs them."""
        self._written -= converted.templates

    def convert(
        self, name: str, data: bytes, *, is_patch: Callable[[], bool] = lambda: False
    ) -> Converted:
        """Convert one input; documents without managed resources are not even parsed.

        Args:
            name: of the input, for messages.
            data: the input, whole.
            is_patch: whether it changes other manifests, and is none itself; asked only where that
                matters, since it costs more than to see that a file names no managed resource.

        Raises:
            UnreadableError: if a document that may name one is neither YAML nor JSON, or is not
                UTF-8.
        """
        result = Converted()
        if b"\0" not in data and not self._scanner.finds(data):
            return result
        self.note_templates(name, data)
        parts: list[str] = []
        changed = False
        try:
            for document in split(name, as_text(name, data)):
                text = self._document(document, result, is_patch)
                changed = changed or text is not None
                parts.append(document.lead + document.text if text is None else text)
        except Exception:
            self.take_back(result)
            raise
        result.text = "".join(parts) if changed else None
        return result

    def _document(
        self, document: Document, result: Converted, is_patch: Callable[[], bool]
    ) -> str | None:
        """Return a document's new text with its lead; None for one that stays."""
        if not self._scanner.finds(document.text.encode()):
            return None
        parsed = document.parsed()
        made = [self._thing(document, thing) for thing in things(parsed.value)]
        entries = [entry for entries, _ in made for entry in entries]
        work = [each for _, migrations in made for each in migrations]
        if work and is_patch():
            entries = [_as_it_was(entry, f"{_REJECTED}: {_PATCH}") for entry in entries]
        elif name := named_in_patch(parsed.value, self._names):
            entries.append(_patching(document, name))
        if any(entry.result is Result.REJECTED for entry in entries):
            # A document is not half converted.
            result.entries += [_as_it_was(entry) for entry in entries]
            return None
        if not work:
            result.entries += entries
            return None
        return self._changed(document, parsed, work, entries, result)

    def _note_template(self, document: Document) -> None:
        if KIND not in document.text:
            return
        with suppress(UnreadableError):  # a document without managed resources is not ours to judge
            found = (template_name(thing.content) for thing in things(document.parsed().value))
            self._written.update(name for name in found if name is not None)

    def _changed(
        self,
        document: Document,
        parsed: Parsed,
        work: list[tuple[Workload, Migration]],
        entries: list[Entry],
        result: Converted,
    ) -> str | None:
        patches: list[tuple[Steps, list[Json]]] = [(w.steps, m.patch) for w, m in work]
        after = patched(parse_again(parsed), patches)
        try:
            text = edited(parsed, after)
        except EditError as error:
            reason = f"{_REJECTED}: {error}; please report it with the manifest"
            result.entries += [_as_it_was(entry, reason) for entry in entries]
            return None
        templates = list(self._new_templates(work, result))
        result.entries += entries
        result.documents += [(document.where, template) for template in templates]
        result.documents.append((document.where, after))
        return _joined(document, text, templates, is_json=parsed.is_json)

    def _thing(
        self, document: Document, thing: Thing
    ) -> tuple[list[Entry], list[tuple[Workload, Migration]]]:
        found = list(workloads(thing))
        migrations, entries = list[tuple[Workload, Migration]](), list[Entry]()
        for workload in found:
            entry, migration = self._workload(document, workload)
            entries += [entry] if entry else []
            migrations += [(workload, migration)] if migration else []
        if not found and named_in(thing.content, self._names):
            entries.append(_unconverted(document, thing, unconverted(thing, self._names)))
        return entries, migrations

    def _workload(
        self, document: Document, workload: Workload
    ) -> tuple[Entry | None, Migration | None]:
        try:
            migration = migrate(workload.pod, self._policy, self._cards)
        except RejectedPod as rejected:
            reason = f"{_REJECTED}: {rejected}"
            return _entry(document, workload, Result.REJECTED, reason=reason), None
        remarks = [Remark(n.message, n.code.value, n.path) for n in migration.notices]
        if not migration.patch:
            entry = _entry(document, workload, Result.UNCHANGED, remarks)
            return (entry if remarks else None), None
        remarks += misplaced(workload, self._policy)
        names = tuple(template.name for template in migration.templates)
        return _entry(document, workload, Result.CHANGED, remarks, templates=names), migration

    def _new_templates(
        self, work: list[tuple[Workload, Migration]], result: Converted
    ) -> Iterator[Json]:
        """Yield the templates that were not written before, in the order of need."""
        for workload, migration in work:
            namespace = workload.thing.namespace
            for template in migration.templates:
                key = (namespace, template.name)
                if key not in self._written:
                    self._written.add(key)
                    result.templates.add(key)
                    yield template.manifest(namespace or None)


def misplaced(workload: Workload, policy: Policy) -> Iterator[Remark]:
    """Tell of annotations on a workload that count on its pods only, for HAMi as for us."""
    groups = [policy.hints, *(family.annotations for family in policy.families)]
    meant = {name for group in groups for name in group.model_dump().values()}
    for name in sorted(meant.intersection(workload.outside)):
        yield Remark(
            "has no effect here, as with HAMi, which reads those of pods; move it to"
            f" {workload.path}.metadata",
            path=f"metadata.annotations[{name}]",
        )


def parse_again(parsed: Parsed) -> Json:
    """Return a document's content as an object of its own, which may be changed."""
    copied: Json = json.loads(json.dumps(parsed.value))
    return copied


def _entry(
    document: Document,
    workload: Workload,
    result: Result,
    remarks: list[Remark] | None = None,
    *,
    reason: str = "",
    templates: tuple[str, ...] = (),
) -> Entry:
    return Entry(
        source=document.source,
        line=document.line,
        title=workload.thing.title,
        result=result,
        namespace=workload.thing.namespace,
        pod_path=workload.path,
        reason=reason,
        remarks=tuple(remarks or ()),
        templates=templates,
    )


def _unconverted(document: Document, thing: Thing, why: str) -> Entry:
    """Tell of an object that names managed resources where no pod is known."""
    note = thing.kind.note if thing.kind else ""
    return Entry(
        source=document.source,
        line=document.line,
        title=thing.title,
        result=Result.UNCHANGED if note else Result.REJECTED,
        namespace=thing.namespace,
        reason="" if note else f"{_REJECTED}: {why}",
        remarks=(Remark(note),) if note else (),
    )


def _patching(document: Document, name: str) -> Entry:
    """Tell of a document that changes a managed resource in other manifests."""
    reason = f"{_REJECTED}: {_PATCHES.format(name=name)}"
    return Entry(document.source, document.line, "patch", Result.REJECTED, reason=reason)


def _as_it_was(entry: Entry, reason: str = "") -> Entry:
    """Return an entry for an object whose document is passed through."""
    if entry.result is not Result.CHANGED:
        return entry
    return Entry(
        source=entry.source,
        line=entry.line,
        title=entry.title,
        result=Result.REJECTED,
        namespace=entry.namespace,
        pod_path=entry.pod_path,
        reason=reason or f"{_REJECTED}: another object of its document cannot be",
        remarks=entry.remarks,
    )


def _joined(document: Document, text: str, templates: list[Json], *, is_json: bool) -> str:
    """Put templates before a document: its own separator and comments stay with it."""
    if not templates:
        return document.lead + text
    line_break = "\r\n" if "\r\n" in document.text else "\n"
    unit = json_unit(document.text)
    written = [
        json.dumps(each, indent=unit, ensure_ascii=False) + "\n" if is_json else as_yaml(each)
        for each in templates
    ]
    if document.is_bare:
        return document.lead + "".join(written).replace("\n", line_break) + text
    before = "---\n".join(written).replace("\n", line_break)
    if document.lead == f"---{line_break}":
        return f"---{line_break}{before}{document.lead}{text}"
    if document.is_behind:
        return f"---{line_break}{before}---{line_break}{document.lead}{text}"
    # kubectl does not see a separator with a comment, so that one goes first and a plain one stands
    # between the templates and the document.
    return f"{document.lead}{before}---{line_break}{text}"


def json_unit(text: str) -> str | None:
    """Return by how much JSON is indented; None for a single line."""
    start = text.find("{") + 1
    inner = text[start:].lstrip("\r\n")
    blank = inner[: len(inner) - len(inner.lstrip(" \t"))]
    return blank if len(inner) < len(text[start:]) else None
