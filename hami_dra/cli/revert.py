"""Revert: give manifests back as they were before they were converted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import jsonpatch

from hami_dra.cli.kinds import Workload, workloads
from hami_dra.cli.render import RoundTrip, plain
from hami_dra.cli.sources import Document
from hami_dra.cli.stream import Finding, Outcome, notes, parsed, separated
from hami_dra.migration import Json, RejectedPod
from hami_dra.migration.claim import MANAGED_BY
from hami_dra.migration.revert import revert

_REJECTED: Final = "not reverted"
_TEMPLATE: Final = "ResourceClaimTemplate"

TemplateName: TypeAlias = tuple[str, str]
"""Namespace, empty where none is named, and name."""


@dataclass(frozen=True, slots=True)
class _Reverted:
    """A document on its way out.

    Attributes:
        document: as it was read.
        root: its content, as it now is.
        changed: how many of its workloads changed.
        template: which template of ours it is; None for anything else.
    """

    document: Document
    root: RoundTrip
    changed: int
    template: TemplateName | None

    @property
    def text(self) -> str:
        """The document as it was written, where nothing changed."""
        return self.root.dump() if self.changed else self.document.text


def revert_all(documents: Iterable[Document]) -> Outcome:
    """Revert documents; those without a record of a conversion stay byte-identical.

    Templates of ours are left out when nothing that remains refers to them.

    Raises:
        UnreadableError: if one is neither YAML nor JSON.
    """
    findings: list[Finding] = []
    reverted = [_reverted(document, findings) for document in documents]
    used = {each for one in reverted for each in _references(one.root.root)}
    output, dropped_lead = "", None
    for one in reverted:
        # A template's separator was that of the document that it was written before.
        lead = one.document.lead if dropped_lead is None else dropped_lead
        if one.template is not None and not _is_used(one.template, used):
            dropped_lead = lead
            continue
        dropped_lead = None
        output += separated(output, lead) + one.text
    return Outcome(output, tuple(findings), sum(one.changed for one in reverted))


def _reverted(document: Document, findings: list[Finding]) -> _Reverted:
    """Revert the workloads of a document, all or none."""
    root = parsed(document)
    patches: list[tuple[Workload, list[Json]]] = []
    before = len(findings)
    for workload in workloads(root.root):
        try:
            patch = revert(plain(workload.pod))
        except RejectedPod as rejected:
            findings.append(notes(document, workload)(str(rejected), rejected=_REJECTED))
            continue
        if patch:
            patches.append((workload, patch))
    if len(findings) > before:
        patches = []
    for workload, patch in patches:
        jsonpatch.apply_patch(workload.pod, patch, in_place=True)
    return _Reverted(document, root, len(patches), _template(root.root))


def _template(root: Any) -> TemplateName | None:  # noqa: ANN401 - any YAML
    """Tell which template of ours a document is."""
    if not isinstance(root, dict) or root.get("kind") != _TEMPLATE:
        return None
    metadata = root.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("labels"), dict):
        return None
    if any(metadata["labels"].get(key) != value for key, value in MANAGED_BY.items()):
        return None
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def _references(root: Any) -> Iterator[TemplateName]:  # noqa: ANN401 - any YAML
    """Yield the templates that the workloads of a document refer to."""
    for workload in workloads(root):
        spec = workload.pod.get("spec")
        entries = spec.get("resourceClaims") if isinstance(spec, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("resourceClaimTemplateName"):
                yield workload.namespace, str(entry["resourceClaimTemplateName"])


def _is_used(template: TemplateName, used: set[TemplateName]) -> bool:
    """Tell whether a workload refers to a template; no namespace may be any."""
    namespace, name = template
    return any(
        name == other and (namespace == within or not namespace or not within)
        for within, other in used
    )
