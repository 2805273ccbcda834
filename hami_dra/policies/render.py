"""Write a policy file: plain YAML, with each field's meaning above it where that is asked for."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hami_dra.migration import Json
from hami_dra.policies.fields import Keys

_WIDTH: Final = 100
_STEP: Final = "  "
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
# YAML 1.1 readers take these for booleans and null, in any case.
_RESERVED: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})
_LAST_ASCII: Final = "~"
# Of a key that ends with a colon on its line; YAML 1.2, section 7.4.
_LONGEST_KEY: Final = 1024


def render(document: Json, notes: Mapping[Keys, str] | None = None) -> str:
    """Write a document, with a comment before the first appearance of each field that has a note.

    Args:
        document: objects, lists and scalars.
        notes: meanings, by the keys that lead to a field.
    """
    lines = _object(document, (), "", dict(notes or {}))
    return "".join(f"{line}\n" for line in lines)


def _object(value: Json, path: Keys, indent: str, notes: dict[Keys, str]) -> Iterator[str]:
    for key, member in value.items():
        here = (*path, key)
        if note := notes.pop(here, ""):
            yield from _comment(note, indent)
        if isinstance(member, dict) and member:
            yield from _key(key, indent)
            yield from _object(member, here, indent + _STEP, notes)
        elif isinstance(member, list) and member:
            yield from _key(key, indent)
            for item in member:
                yield from _item(item, here, indent + _STEP, notes)
        else:
            *before, last = _key(key, indent)
            yield from before
            yield f"{last} {_inline(member)}"


def _key(key: str, indent: str) -> Iterator[str]:
    """Yield the lines of a key, the last of which its value may follow."""
    text = _inline(key)
    if len(text) <= _LONGEST_KEY:
        yield f"{indent}{text}:"
    else:
        yield f"{indent}? {text}"
        yield f"{indent}:"


def _item(item: Any, path: Keys, indent: str, notes: dict[Keys, str]) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if not (isinstance(item, dict) and item):
        yield f"{indent}- {_inline(item)}"
        return
    inner = indent + _STEP
    is_open = False
    for line in _object(item, path, inner, notes):
        if is_open or line.lstrip().startswith("#"):
            yield line
        else:
            is_open = True
            yield f"{indent}- {line.removeprefix(inner)}"


def _comment(note: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(note, _WIDTH - len(indent) - 2, break_long_words=False):
        yield f"{indent}# {line}"


def _inline(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _RESERVED
        return value if is_plain else _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(_inline(item) for item in value)}]"
    if isinstance(value, dict):
        # Marked as keys, however long they are.
        members = (f"? {_inline(key)} : {_inline(member)}" for key, member in value.items())
        return f"{{{', '.join(members)}}}"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(text: str) -> str:
    return f'"{"".join(_escaped(character) for character in text)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if " " <= character <= _LAST_ASCII else f"\\U{ord(character):08x}"
