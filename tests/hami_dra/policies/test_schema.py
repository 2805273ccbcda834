"""The schema that editors read admits what loads and knows every key."""

from typing import Any

from hami_dra.migration import Policy
from hami_dra.migration.presets import PRESETS
from hami_dra.policies.fields import known_keys, notes
from hami_dra.policies.file import document
from hami_dra.policies.schema import schema

SCHEMA = schema()


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference, and take the object among alternatives."""
    for alternative in node.get("anyOf", []):
        if "$ref" in alternative:
            return resolved(alternative)
    name = node.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = SCHEMA["$defs"][name] if name else node
    return found


def at(path: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of a field."""
    node = SCHEMA
    for key in path:
        node = resolved(node)["properties"][key]
        node = node.get("items", node) if key == "families" else node
    return node


def test_the_keys_are_those_of_the_file() -> None:
    """Version and kind are required, and unknown keys are errors at every level."""
    assert SCHEMA["required"] == ["apiVersion", "kind"]
    assert set(SCHEMA["properties"]) == {"apiVersion", "kind", *known_keys(())}
    for path in {(), *(path[:-1] for path in notes())}:
        assert resolved(at(path))["additionalProperties"] is False
        if path:
            assert set(resolved(at(path))["properties"]) == set(known_keys(path))


def test_every_field_is_described() -> None:
    """An editor shows the docstring of the field under the cursor."""
    for path in notes():
        holder = resolved(at(path[:-1]))["properties"][path[-1]]
        assert holder["description"]


def test_a_family_is_a_preset_or_an_object() -> None:
    """Editors complete the names of presets in both places."""
    assert at(("families",))["anyOf"][0] == {"enum": list(PRESETS)}
    assert resolved(at(("families",)))["properties"]["preset"]["enum"] == list(PRESETS)


def test_the_default_policy_has_only_what_the_schema_knows() -> None:
    """What `policy show` prints would not be marked as wrong."""
    shown = document(Policy())

    assert set(shown) <= set(SCHEMA["properties"])
    assert set(shown["families"][0]) <= set(resolved(at(("families",)))["properties"])
