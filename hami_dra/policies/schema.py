"""The JSON Schema of a policy file, for editors."""

from typing import Any, Final

from hami_dra.migration import Json, Policy
from hami_dra.migration.presets import PRESETS
from hami_dra.policies.fields import PRESET, PRESET_NOTE, records
from hami_dra.policies.file import API_VERSION, KIND
from hami_dra.policies.meanings import meanings

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_OF_A_FAMILY: Final = ("Family", "ResourceNames", "AnnotationNames", "Capacities")


def schema() -> Json:
    """Return the schema; its descriptions are the docstrings of the models."""
    generated: Json = _tidy(Policy.model_json_schema(by_alias=True))
    definitions = generated["$defs"]
    _describe({Policy.__name__: generated, **definitions})
    for name in _OF_A_FAMILY:
        # The defaults of the model are NVIDIA's; in a file they are those of the preset.
        for member in definitions[name]["properties"].values():
            member.pop("default", None)
    family = definitions["Family"]
    preset = {"enum": list(PRESETS), "description": PRESET_NOTE, "default": "nvidia"}
    family["properties"] = {PRESET: preset, **family["properties"]}
    properties = generated["properties"]
    either = [{"enum": list(PRESETS)}, {"$ref": "#/$defs/Family"}]
    properties["families"] |= {"items": {"anyOf": either}, "default": ["nvidia"]}
    header = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
    return {
        "$schema": _DIALECT,
        "title": "hami-dra Policy",
        **generated,
        "properties": {**header, **properties},
        "required": list(header),
    }


def _describe(objects: Json) -> None:
    """Say of each property what it means; keys are in the order that pydantic gives them."""
    for record in records():
        properties = objects[record.__name__]["properties"]
        for key, meaning in meanings(record).items():
            described = {**properties[key], "description": meaning}
            properties[key] = dict(sorted(described.items()))


def _tidy(node: Any) -> Any:  # noqa: ANN401 - any JSON
    """Drop the titles that pydantic derives from names, and put descriptions on one line."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if not _is_title(key, value)}
    return {
        key: " ".join(value.split())
        if key == "description" and isinstance(value, str)
        else _tidy(value)
        for key, value in kept.items()
    }


def _is_title(key: str, value: object) -> bool:
    return key == "title" and isinstance(value, str)
