"""The JSON Schema of a policy file, for editors."""

from typing import Final

from hami_dra.migration import Json, Policy
from hami_dra.migration.presets import PRESETS
from hami_dra.policies.fields import PRESET, PRESET_NOTE
from hami_dra.policies.file import API_VERSION, KIND

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> Json:
    """Return the schema; its descriptions are the docstrings of the models."""
    generated = Policy.model_json_schema(by_alias=True)
    definitions = generated["$defs"]
    family = definitions["Family"]
    preset = {"enum": list(PRESETS), "description": PRESET_NOTE, "default": "nvidia"}
    # The defaults of the model are NVIDIA's; in a file they are those of the preset.
    family["properties"] = {PRESET: preset, **_without_defaults(family["properties"])}
    for name in ("ResourceNames", "AnnotationNames", "Capacities"):
        definitions[name]["properties"] = _without_defaults(definitions[name]["properties"])
    properties = generated["properties"]
    properties["families"]["items"] = {
        "anyOf": [{"enum": list(PRESETS)}, {"$ref": "#/$defs/Family"}]
    }
    header = {"apiVersion": {"const": API_VERSION}, "kind": {"const": KIND}}
    return {
        **generated,
        "$schema": _DIALECT,
        "title": "hami-dra Policy",
        "properties": {**header, **properties},
        "required": list(header),
    }


def _without_defaults(properties: Json) -> Json:
    return {
        name: {key: value for key, value in member.items() if key != "default"}
        for name, member in properties.items()
    }
