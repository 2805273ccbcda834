"""The record of a migration, kept in one annotation of the pod (ruling 20).

It makes a second pass harmless, is the audit trail, and holds what `hami-dra revert` gives back.
A record is believed only as far as the pod bears it out: annotations are text that anyone writes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hami_dra.migration.json import Json

ANNOTATION: Final = "hami-dra.io/migration"

TEMPLATE_PREFIX: Final = "hami-"
"""Start of the name of every template that a migration makes."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What was done to one container.

    Attributes:
        claims: the pod's claim entries that the container got; empty when it asked for no card.
        limits: the managed limits as written before.
        requests: the managed requests as written before.
    """

    claims: tuple[str, ...] = ()
    limits: Json = field(default_factory=dict)
    requests: Json = field(default_factory=dict)

    def extended(self, claims: tuple[str, ...], removed: Mapping[str, Json]) -> "Converted":
        """Return this record with what was done for one more family."""
        return Converted(
            claims=(*self.claims, *claims),
            limits={**self.limits, **removed.get("limits", {})},
            requests={**self.requests, **removed.get("requests", {})},
        )

    def as_json(self) -> Json:
        """Return the form that the annotation holds."""
        written: Json = {"claims": list(self.claims), "limits": self.limits}
        return {**written, "requests": self.requests} if self.requests else written


def read(pod: Json) -> dict[str, Converted]:
    """Return the records, by container name, that the pod's claim entries bear out."""
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        return {}
    annotations = metadata.get("annotations")
    written = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
    entries = _our_entries(spec.get("resourceClaims"))
    records = {name: _converted(record) for name, record in _decode(written).items()}
    return {
        name: record
        for name, record in records.items()
        if record is not None and entries.issuperset(record.claims)
    }


def write(records: Mapping[str, Converted]) -> str:
    """Return the annotation's value."""
    kept = {name: record.as_json() for name, record in records.items()}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _decode(written: object) -> Json:
    try:
        decoded = json.loads(written) if isinstance(written, str) else {}
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _converted(record: object) -> Converted | None:
    if not isinstance(record, Mapping):
        return None
    claims, limits, requests = (record.get(key) for key in ("claims", "limits", "requests"))
    if not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
        return None
    return Converted(
        claims=tuple(claims),
        limits=limits if isinstance(limits, dict) else {},
        requests=requests if isinstance(requests, dict) else {},
    )


def _our_entries(entries: object) -> set[str]:
    """Return the names of the pod's claim entries that point to templates of ours."""
    found = (
        (entry for entry in entries or () if isinstance(entry, Mapping))
        if isinstance(entries, list)
        else ()
    )
    return {
        entry["name"]
        for entry in found
        if isinstance(entry.get("name"), str)
        and str(entry.get("resourceClaimTemplateName", "")).startswith(TEMPLATE_PREFIX)
    }
