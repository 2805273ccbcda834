"""Scalars: read as Kubernetes reads them, and written so that it reads the same.

Kubernetes reads YAML with go-yaml 2, which is neither YAML 1.1 nor 1.2: `on` is true, `0777` is
511, `1_000` is 1000, `1:30` is text. The tests ask the real kubectl.
"""

import base64
import json
import math
import re
from typing import Any, Final

_TRUE: Final = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE: Final = frozenset(
    ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
)
_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_NO_NUMBER: Final = frozenset(
    f"{sign}{word}" for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")
) | {".nan", ".NaN", ".NAN"}

_INTEGER: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|[1-9][0-9]*|0)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FIRST_OF_NUMBER: Final = frozenset("0123456789+-.")
_LARGEST_INTEGER: Final = 2**64
_SMALLEST_INTEGER: Final = -(2**63)
_EXACT: Final = 1e21  # Go writes integral numbers below it without an exponent

_CORE: Final = "tag:yaml.org,2002:"
_PLAIN: Final = re.compile(r"[A-Za-z_](?:[A-Za-z0-9._/-]*[A-Za-z0-9_/-])?|[0-9]+[KMGT]i")
_PRINTABLE: Final = re.compile(r"[ -~\u00a0-\ud7ff\ue000-\ufefe\uff00-\ufffd]*")


def resolved(text: str, *, style: str, tag: str) -> Any:  # noqa: ANN401 - any scalar
    """Return what a scalar means to Kubernetes.

    Args:
        text: without quotes and escapes.
        style: how it is quoted; empty for not at all.
        tag: its explicit tag, empty for none.

    Raises:
        ValueError: if the text does not fit the tag, or is no JSON value.
    """
    short = tag.removeprefix(_CORE)
    if short == "binary":
        return base64.b64decode(text).decode("utf-8", "replace")
    if short in {"int", "float", "bool", "null"}:
        return _tagged(text, short)
    if tag or style:
        return text
    return _plain(text)


def _tagged(text: str, tag: str) -> Any:  # noqa: ANN401 - any scalar
    value = _plain(text)
    kinds = {"int": int, "float": int | float, "bool": bool, "null": type(None)}
    if not isinstance(value, kinds[tag]) or (tag in {"int", "float"} and isinstance(value, bool)):
        raise ValueError(f"found {text!r}, expected !!{tag}")
    return value


def _plain(text: str) -> Any:  # noqa: ANN401 - any scalar
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text in _NO_NUMBER:
        raise ValueError(f"found {text}, expected a number that JSON can hold")
    return _number(text) if text[0] in _FIRST_OF_NUMBER else text


def _number(text: str) -> Any:  # noqa: ANN401 - a number, or the text itself
    plain = text if text.startswith(".") else text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        value = _integer(plain)
        if _SMALLEST_INTEGER <= value < _LARGEST_INTEGER:
            return value
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if math.isinf(number):
            return text
        return int(number) if number.is_integer() and abs(number) < _EXACT else number
    return text


def _integer(plain: str) -> int:
    """Read an integer as Go does: a leading zero alone makes it octal."""
    digits = plain.lstrip("+-")
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    value = int(digits, 8 if is_octal else 0)
    return -value if plain.startswith("-") else value


def key_text(value: object) -> str:
    """Return a key as text, as Kubernetes turns keys into those of JSON.

    Raises:
        ValueError: if no key can be made of it.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise ValueError(f"found {type(value).__name__} as a key, expected text")


def written(value: object, *, as_json: bool) -> str:
    """Write a scalar on one line, in the shortest form that every YAML reader takes alike.

    Args:
        value: text, a number, a boolean or None.
        as_json: whether to write JSON.
    """
    if not isinstance(value, str) or as_json:
        return json.dumps(value, ensure_ascii=False)
    if _PLAIN.fullmatch(value) and _plain_everywhere(value):
        return value
    if ('"' in value or "\\" in value) and _PRINTABLE.fullmatch(value):
        return "'" + value.replace("'", "''") + "'"
    if _PRINTABLE.fullmatch(value):
        return json.dumps(value, ensure_ascii=False)
    return "".join(_escaped(character) for character in json.dumps(value, ensure_ascii=False))


def _plain_everywhere(text: str) -> bool:
    return text.lower() not in {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def _escaped(character: str) -> str:
    if _PRINTABLE.fullmatch(character):
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
