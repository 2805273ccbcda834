"""Say in the words of the file what pydantic found wrong with it."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from hami_dra.policies.fields import known_keys
from hami_dra.policies.problem import FieldPath, found

_VALUE_ERROR: Final = "Value error, "

_EXPECTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": 'a version such as "1.37"',
}


def problems_of(
    error: ValidationError, numbers: Mapping[FieldPath, str]
) -> Iterator[tuple[FieldPath, str]]:
    """Yield path and message of everything that is wrong.

    Args:
        error: what pydantic says.
        numbers: how the file spells its numbers.
    """
    for detail in error.errors():
        yield detail["loc"], _message(detail, numbers.get(detail["loc"], ""))


def coercions(written: Any, loaded: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, str]]:  # noqa: ANN401 - any YAML
    """Yield what was taken for another type, such as a number in quotes.

    Args:
        written: a value of the file.
        loaded: the same value as it was understood.
        path: where it stands.
    """
    if isinstance(written, dict) and isinstance(loaded, dict):
        for key, value in written.items():
            if key in loaded:
                yield from coercions(value, loaded[key], (*path, key))
    elif isinstance(written, list) and isinstance(loaded, list):
        for index, (value, other) in enumerate(zip(written, loaded, strict=False)):
            yield from coercions(value, other, (*path, index))
    elif type(written) is not type(loaded) and not isinstance(loaded, dict):
        expected = "true or false" if isinstance(loaded, bool) else "a whole number"
        yield path, f"{found(written)}, expected {expected}; write {str(loaded).lower()}"


def _message(detail: ErrorDetails, number: str) -> str:
    kind, value = detail["type"], detail.get("input")
    context = detail.get("ctx") or {}
    if kind == "extra_forbidden":
        return _unknown(detail["loc"])
    if kind == "missing":
        return "missing; every object of this kind needs it"
    if kind == "value_error":
        return detail["msg"].removeprefix(_VALUE_ERROR)
    if kind not in _EXPECTED:
        return f"{found(value)}: {detail['msg']}"
    expected = _EXPECTED[kind].format_map(context)
    if kind == "string_type" and number:
        return f'found {number} without quotes, expected text; write "{number}"'
    return f"{found(value)}, expected {expected}"


def _unknown(path: FieldPath) -> str:
    """Name the key that was probably meant."""
    known = known_keys(path[:-1])
    near = get_close_matches(str(path[-1]), known, n=1)
    if near:
        return f"unknown key, did you mean {near[0]}?"
    return f"unknown key, expected one of: {', '.join(known)}"
