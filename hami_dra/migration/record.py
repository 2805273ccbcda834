"""The record of a migration, kept in one annotation of the pod (ruling 20).

It makes a second pass harmless, is the audit trail, and holds what `hami-dra revert` gives back.
A record is believed only as far as the pod bears it out: annotations are text that anyone writes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hami_dra.migration.json import Json

ANNOTATION: Final = "hami-dra.io/migration"

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)

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


@dataclass(slots=True)
class Record:
    """What was done to a pod.

    Attributes:
        containers: by name; only those that asked for managed resources.
        variables: names of the environment variables that were appended, by container.
        fields: values of the pod's fields that were replaced, None where there was none before.
    """

    containers: dict[str, Converted] = field(default_factory=dict)
    variables: dict[str, list[str]] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)

    def as_text(self) -> str:
        """Return the annotation's value: short, and the same for the same record.

        Amounts stand in the order in which they were written, in which a revert gives them back.
        """
        containers = {
            name: _without_empty(
                {"claims": list(c.claims), "limits": c.limits, "requests": c.requests}
            )
            for name, c in sorted(self.containers.items())
        }
        variables, fields = dict(sorted(self.variables.items())), dict(sorted(self.fields.items()))
        parts = {"containers": containers, "env": variables, "fields": fields}
        return _ENCODER.encode(_without_empty(parts))


def read(pod: Json) -> Record:
    """Return what the pod's annotation says and its claim entries bear out."""
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        return Record()
    annotations = metadata.get("annotations")
    if not isinstance(annotations, dict) or ANNOTATION not in annotations:
        return Record()
    decoded = _decode(annotations[ANNOTATION])
    entries = _our_entries(spec.get("resourceClaims"))
    converted = {
        str(name): _converted(each) for name, each in _object(decoded.get("containers")).items()
    }
    variables = _object(decoded.get("env"))
    return Record(
        containers={n: c for n, c in converted.items() if c and entries.issuperset(c.claims)},
        variables={
            str(n): [str(v) for v in names]
            for n, names in variables.items()
            if isinstance(names, list)
        },
        fields=_object(decoded.get("fields")),
    )


def _without_empty(parts: Json) -> Json:
    return {key: value for key, value in parts.items() if value}


def _object(value: object) -> Json:
    return dict(value) if isinstance(value, dict) else {}


def _decode(written: object) -> Json:
    try:
        return _object(json.loads(written)) if isinstance(written, str) else {}
    except (ValueError, RecursionError):
        return {}


def _converted(record: object) -> Converted | None:
    if not isinstance(record, dict):
        return None
    claims = record.get("claims", [])
    if not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
        return None
    return Converted(
        claims=tuple(claims),
        limits=_object(record.get("limits")),
        requests=_object(record.get("requests")),
    )


def _our_entries(entries: object) -> set[str]:
    """Return the names of the pod's claim entries that point to templates of ours."""
    if not isinstance(entries, list):
        return set()
    return {
        entry["name"]
        for entry in entries
        if isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and str(entry.get("resourceClaimTemplateName", "")).startswith(TEMPLATE_PREFIX)
    }
