"""Revert: give manifests back as they were before they were converted."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from hami_dra.cli.conversion import parse_again
from hami_dra.cli.documents import Document, split
from hami_dra.cli.patching import patched
from hami_dra.cli.report import Entry, Result
from hami_dra.cli.scan import Scanner
from hami_dra.cli.sources import as_text
from hami_dra.cli.templates import TemplateName, template_name
from hami_dra.cli.workloads import Steps, Workload, things, workloads
from hami_dra.migration import Json, RejectedPod
from hami_dra.migration.claim import MANAGED_BY
from hami_dra.migration.record import ANNOTATION, TEMPLATE_PREFIX
from hami_dra.migration.revert import revert
from hami_dra.yaml_edit import EditError, edited

_REJECTED: Final = "not reverted"
_PLAIN: Final = ("---\n", "---\r\n")


@dataclass(slots=True)
class Part:
    """A document on its way out.

    Attributes:
        lead: the separator before it.
        text: as it will be written.
        is_behind: whether it starts behind its separator, in the same line.
        template: which template of ours it is; None for anything else.
    """

    lead: str
    text: str
    is_behind: bool = False
    template: TemplateName | None = None


@dataclass(slots=True)
class Reverted:
    """One input on its way out.

    Attributes:
        entries: what is to be said of its objects.
        changed: whether a document changed.
        parts: its documents; None for an input that holds nothing of interest.
    """

    entries: list[Entry] = field(default_factory=list)
    changed: bool = False
    parts: list[Part] | None = None


class Reverter:
    """Reverts inputs; templates go when nothing that was read refers to them any more."""

    def __init__(self) -> None:
        self._scanner = Scanner((ANNOTATION, *MANAGED_BY.values(), TEMPLATE_PREFIX))
        self._used: set[TemplateName] = set()

    def revert(self, name: str, data: bytes) -> Reverted:
        """Revert one input; what becomes of its templates is known once all were read.

        Raises:
            UnreadableError: if a document that may hold a record is neither YAML nor JSON, or is
                not UTF-8.
        """
        result = Reverted()
        if b"\0" not in data and not self._scanner.finds(data):
            return result
        used: set[TemplateName] = set()
        result.parts = [
            self._part(document, result, used) for document in split(name, as_text(name, data))
        ]
        self._used |= used
        return result

    def text(self, reverted: Reverted) -> str | None:
        """Return an input's new text; None where nothing changed. Only after all were read."""
        if reverted.parts is None:
            return None
        parts: list[str] = []
        carried: str | None = None
        follows_template = False
        for part, following in zip_longest(reverted.parts, reverted.parts[1:]):
            lead = part.lead if carried is None else carried
            carried = None
            is_between = following is not None and following.is_behind and not part.text
            if follows_template and is_between and lead in _PLAIN:
                follows_template = False
                continue  # it stood between a template and the document that needed it
            follows_template = False
            if part.template is not None and not self._is_used(part.template):
                reverted.changed = True
                # A conversion puts a plain separator of its own before the template, or keeps the
                # document's before it and puts a plain one behind.
                carried = None if lead in _PLAIN else lead
                follows_template = True
                continue
            parts += [lead, part.text]
        return "".join([*parts, carried or ""]) if reverted.changed else None

    def _part(self, document: Document, result: Reverted, used: set[TemplateName]) -> Part:
        if not self._scanner.finds(document.text.encode()):
            return Part(document.lead, document.text, document.is_behind)
        parsed = document.parsed()
        found = [each for thing in things(parsed.value) for each in workloads(thing)]
        patches, entries = _patches(document, found)
        after, text = parsed.value, document.text
        if patches:
            after = patched(parse_again(parsed), patches)
            try:
                text = edited(parsed, after)
                result.changed = True
            except EditError as error:
                after = parsed.value
                entries = [_entry(document, each, f"{_REJECTED}: {error}") for each in found]
        result.entries += entries
        used |= set(_references(after))
        return Part(document.lead, text, document.is_behind, template_name(after))

    def _is_used(self, template: TemplateName) -> bool:
        """Tell whether a workload refers to a template; no namespace may be any."""
        namespace, name = template
        return any(
            name == other and (namespace == within or not namespace or not within)
            for within, other in self._used
        )


def _patches(
    document: Document, found: list[Workload]
) -> tuple[list[tuple[Steps, list[Json]]], list[Entry]]:
    """Return how the workloads of a document are reverted: all of them or none."""
    patches, entries = list[tuple[Steps, list[Json]]](), list[Entry]()
    is_rejected = False
    for workload in found:
        try:
            patch = revert(workload.pod)
        except RejectedPod as rejected:
            entries.append(_entry(document, workload, f"{_REJECTED}: {rejected}"))
            is_rejected = True
            continue
        if patch:
            patches.append((workload.steps, patch))
            entries.append(_entry(document, workload))
    if is_rejected:
        return [], [entry for entry in entries if entry.result is Result.REJECTED]
    return patches, entries


def _entry(document: Document, workload: Workload, reason: str = "") -> Entry:
    return Entry(
        source=document.source,
        line=document.line,
        title=workload.thing.title,
        result=Result.REJECTED if reason else Result.CHANGED,
        namespace=workload.thing.namespace,
        pod_path=workload.path,
        reason=reason,
    )


def _references(root: Any) -> Iterator[TemplateName]:  # noqa: ANN401 - any YAML
    """Yield the templates that the workloads of a document refer to."""
    for thing in things(root):
        for workload in workloads(thing):
            spec = workload.pod.get("spec")
            entries = spec.get("resourceClaims") if isinstance(spec, dict) else None
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict) and entry.get("resourceClaimTemplateName"):
                    yield thing.namespace, str(entry["resourceClaimTemplateName"])
