"""What Kubernetes' API says of the fields of an object, as the official client's models know it.

The models name fields, their types and which are required. They do not know which words a field
takes, how quantities are written, or what admission says; a server does.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeAlias, get_args, get_origin

import kubernetes
from kubernetes.client import models

Path: TypeAlias = tuple[str | int, ...]
"""Keys and positions that lead to a place in an object."""

_LIST: Final = re.compile(r"List\[(.+)\]")
_DICT: Final = re.compile(r"Dict\[str, (.+)\]")
_EXPECTED: Final = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "datetime": "a time such as 2026-01-31T09:00:00Z",
    "quantity": "a quantity",
    "int-or-string": "a whole number or a string",
}
QUANTITIES: Final = frozenset(
    (
        *("limits", "requests", "overhead", "sizeLimit", "divisor", "quantity", "capacity"),
        *("allocatedResources", "perContainer", "perPod"),
    )
)
"""Fields of quantities: the models call them strings, yet the API takes numbers there too."""

# What controllers report; the server puts aside what a new object says of it, however little.
_REPORTED: Final = ("Status", "Condition")
_LONGEST: Final = 40


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing in an object that the API does not take.

    Attributes:
        path: where.
        text: what was found and what is expected.
    """

    path: Path
    text: str


def version() -> str:
    """Return the version of Kubernetes that the models are of, such as `1.37`."""
    return f"1.{kubernetes.__version__.partition('.')[0]}"


def model_of(api_version: str, kind: str) -> str:
    """Return the model of a kind of Kubernetes itself; empty where it has none.

    Args:
        api_version: group and version; the group must be one of Kubernetes' own, for models are
            named by version and kind alone.
        kind: as objects name it.
    """
    name = f"{api_version.rpartition('/')[2].capitalize()}{kind}"
    found = getattr(models, name, None)
    return name if hasattr(found, "attribute_map") else ""


def problems(value: Any, model: str, path: Path = ()) -> Iterator[Problem]:  # noqa: ANN401
    """Yield everything in a value that a model does not have or has otherwise.

    Args:
        value: any JSON.
        model: name of a model of the official client, such as `V1PodTemplateSpec`.
        path: where the value stands.
    """
    if not isinstance(value, dict):
        yield _wrong(path, value, "an object")
        return
    known = _fields(model)
    for key, member in value.items():
        if key not in known:
            yield _unknown(model, (*path, str(key)), list(known))
        elif member is not None:  # the API takes null for absent
            yield from _checked(member, known[key].type, (*path, key))
    for name, field in known.items():
        if field.is_required and value.get(name) is None:
            expected = _described(field.type)
            yield Problem((*path, name), f"found nothing, expected {expected}")


@dataclass(frozen=True, slots=True)
class _Field:
    """What a model says of a field: its type in the client's words, or in better ones of ours."""

    type: str
    is_required: bool


@cache
def _fields(model: str) -> dict[str, _Field]:
    """Return the fields of a model by the names that manifests use."""
    known = getattr(models, model)
    is_reported = model.endswith(_REPORTED)
    fields = {each.serialization_alias or name: each for name, each in known.model_fields.items()}
    return {
        written: _Field(
            _type(written, known.openapi_types[name], fields[written].annotation),
            fields[written].is_required() and not is_reported,
        )
        for name, written in known.attribute_map.items()
    }


def _type(name: str, said: str, annotation: Any) -> str:  # noqa: ANN401 - a type hint
    if said == "object":
        is_free = dict in {get_origin(each) for each in (annotation, *get_args(annotation))}
        return said if is_free else "int-or-string"
    if name in QUANTITIES and said in {"str", "Dict[str, str]"}:
        return said.replace("str]", "quantity]") if "[" in said else "quantity"
    return said


def _checked(value: Any, type_: str, path: Path) -> Iterator[Problem]:  # noqa: ANN401
    if (match := _LIST.fullmatch(type_)) and isinstance(value, list):
        for index, member in enumerate(value):
            yield from _checked(member, match[1], (*path, index))
    elif (match := _DICT.fullmatch(type_)) and isinstance(value, dict):
        for key, member in value.items():
            if member is not None:
                yield from _checked(member, match[1], (*path, str(key)))
    elif hasattr(models, type_):
        yield from problems(value, type_, path)
    elif "[" in type_ or not _fits(value, type_):
        yield _wrong(path, value, _described(type_))


def _fits(value: Any, type_: str) -> bool:  # noqa: ANN401
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_whole = is_number and float(value).is_integer()
    fits = {
        "str": isinstance(value, str),
        "bool": isinstance(value, bool),
        "int": is_whole,
        "float": is_number,
        "quantity": is_number or isinstance(value, str),
        "int-or-string": is_whole or isinstance(value, str),
        "datetime": isinstance(value, str) and _is_time(value),
        "object": isinstance(value, dict),
    }
    return fits[type_]


def _is_time(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _described(type_: str) -> str:
    if _LIST.fullmatch(type_):
        return "a list"
    return _EXPECTED.get(type_, "an object")


def _wrong(path: Path, value: Any, expected: str) -> Problem:  # noqa: ANN401
    return Problem(path, f"found {_shown(value)}, expected {expected}")


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _unknown(model: str, path: Path, names: list[str]) -> Problem:
    lower = {name.lower().replace("_", ""): name for name in names}
    wanted = str(path[-1]).lower().replace("_", "")
    near = get_close_matches(wanted, lower, n=1)
    owner = re.sub(r"^V\d+((alpha|beta)\d+)?", "", model)
    expected = f", expected {lower[near[0]]}" if near else "; remove it"
    return Problem(path, f"found a field that {owner} does not have{expected}")
