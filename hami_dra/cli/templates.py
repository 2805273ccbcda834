"""Which of our templates a document is."""

from typing import Any, Final, TypeAlias

from hami_dra.migration.claim import MANAGED_BY

KIND: Final = "ResourceClaimTemplate"

TemplateName: TypeAlias = tuple[str, str]
"""Namespace, empty where none is named, and name."""


def template_name(root: Any) -> TemplateName | None:  # noqa: ANN401 - any YAML
    """Tell which template of ours a document is; None for anything else."""
    if not isinstance(root, dict) or root.get("kind") != KIND:
        return None
    metadata = root.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("labels"), dict):
        return None
    if any(metadata["labels"].get(key) != value for key, value in MANAGED_BY.items()):
        return None
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
