"""Objects of ours as text."""

from hami_dra.migration import Json
from hami_dra.yaml_edit import as_yaml


def manifest(document: Json) -> str:
    """Write an object of ours as YAML."""
    return as_yaml(document)
