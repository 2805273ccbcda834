"""Convert: apply to manifests the very patch that the webhook would send for their pods."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Final

import jsonpatch

from hami_dra.cli.kinds import Workload, workloads
from hami_dra.cli.render import RoundTrip, manifest, plain
from hami_dra.cli.sources import Document
from hami_dra.cli.stream import Finding, Outcome, notes, parsed, separated
from hami_dra.migration import Cards, Migration, Policy, RejectedPod, migrate

_REJECTED: Final = "not converted"


def convert(documents: Iterable[Document], policy: Policy, cards: Cards) -> Outcome:
    """Convert documents; those without legacy keys stay byte-identical.

    Each template stands before the first document that needs it (ruling 44).

    Raises:
        UnreadableError: if one is neither YAML nor JSON.
    """
    written: set[tuple[str, str]] = set()
    output, findings, converted = "", list[Finding](), 0
    for document in documents:
        root = parsed(document)
        migrations, found = _migrate_all(root, document, policy, cards)
        output += separated(output, document.lead)
        for workload, migration in migrations:
            output += _templates(workload, migration, written)
            # jsonpatch edits the round-trip nodes in place, so comments and order survive.
            jsonpatch.apply_patch(workload.pod, deepcopy(migration.patch), in_place=True)
        output += root.dump() if migrations else document.text
        findings += found
        converted += len(migrations)
    return Outcome(output, tuple(findings), converted)


def _migrate_all(
    root: RoundTrip, document: Document, policy: Policy, cards: Cards
) -> tuple[list[tuple[Workload, Migration]], list[Finding]]:
    """Migrate the workloads of a document, all or none: a document is not half converted."""
    migrations, findings = [], []
    for workload in workloads(root.root):
        note = notes(document, workload)
        try:
            migration = migrate(plain(workload.pod), policy, cards)
        except RejectedPod as rejected:
            findings.append(note(str(rejected), rejected=_REJECTED))
            continue
        findings += [note(str(notice)) for notice in migration.notices]
        if migration.patch:
            findings += [note(told) for told in _misplaced(workload, policy)]
            migrations.append((workload, migration))
    return ([] if any(each.rejected for each in findings) else migrations), findings


def _misplaced(workload: Workload, policy: Policy) -> Iterator[str]:
    """Tell of annotations on a workload that count on its pods only, for HAMi as for us."""
    groups = [policy.hints, *(family.annotations for family in policy.families)]
    meant = {name for group in groups for name in group.model_dump().values()}
    for name in sorted(meant.intersection(workload.outside)):
        yield (
            f"metadata.annotations[{name}]: has no effect here, as with HAMi, which reads those of"
            f" pods; move it to {workload.path}.metadata"
        )


def _templates(workload: Workload, migration: Migration, written: set[tuple[str, str]]) -> str:
    """Render the templates that a workload needs and that were not written before."""
    text = ""
    for template in migration.templates:
        key = (workload.namespace, template.name)
        if key not in written:
            written.add(key)
            text += f"{manifest(template.manifest(workload.namespace or None))}---\n"
    return text
