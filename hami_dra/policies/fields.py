"""What may stand where in a policy file: keys, their meaning, and the values of closed sets.

Everything is read off the models, so that the file, its schema and its errors cannot disagree.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from hami_dra.migration import Policy
from hami_dra.migration.family import Family, Record
from hami_dra.policies.meanings import meanings
from hami_dra.policies.problem import FieldPath

PRESET: Final = "preset"
"""Key of a family that names what its other keys lie on top of."""

PRESET_NOTE: Final = "The family whose fields apply where this one says nothing."
"""What it means."""

Keys = tuple[str, ...]


def known_keys(path: FieldPath) -> Keys:
    """Return the keys that may stand in an object of the file; none if it is not an object."""
    record: type[Record] = Policy
    for key in (step for step in path if isinstance(step, str)):
        fields = {_alias(name, info): info for name, info in record.model_fields.items()}
        inner = _record_in(fields[key].annotation) if key in fields else None
        if inner is None:
            return ()
        record = inner
    keys = tuple(_alias(name, info) for name, info in record.model_fields.items())
    return (PRESET, *keys) if record is Family else keys


def notes() -> dict[Keys, str]:
    """Return the meaning of every field, by the keys that lead to it."""
    return dict(_notes(Policy, ()))


def _notes(record: type[Record], path: Keys) -> Iterator[tuple[Keys, str]]:
    described = meanings(record)
    for name, info in record.model_fields.items():
        key = _alias(name, info)
        here, meaning = (*path, key), described.get(key, "")
        if values := _values(info.annotation):
            meaning += f" One of: {', '.join(value or '(empty)' for value in values)}."
        yield here, meaning
        if inner := _record_in(info.annotation):
            yield from _notes(inner, here)


def records(record: type[Record] = Policy) -> Iterator[type[Record]]:
    """Walk a record and those that it holds."""
    yield record
    for info in record.model_fields.values():
        if inner := _record_in(info.annotation):
            yield from records(inner)


def _alias(name: str, info: FieldInfo) -> str:
    return info.alias or name


def _values(annotation: Any) -> tuple[str, ...]:  # noqa: ANN401 - any type
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _record_in(annotation: Any) -> type[Record] | None:  # noqa: ANN401 - any type
    """Find the record in a type such as `tuple[Record, ...]` or `Record | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return annotation
    return next((each for inner in get_args(annotation) if (each := _record_in(inner))), None)
