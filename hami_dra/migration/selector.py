"""Write: annotations that pick cards become CEL conditions on attributes (rulings 12, 13).

User text enters only as an escaped CEL literal. Every attribute is guarded, because one missing
attribute aborts the scheduling of the pod instead of skipping the card.
"""

import unicodedata
from collections.abc import Callable
from typing import Final

from hami_dra.migration.json import Json
from hami_dra.migration.notice import RejectedPod
from hami_dra.migration.policy import Family

_LONGEST: Final = 10 * 1024  # resource.k8s.io/v1: a CEL expression has at most 10 KiB

# What Go's strings.TrimSpace removes. Python's str.strip() would also take \x1c to \x1f.
_GO_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_ASCII_UPPER: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def selectors(annotations: Json, family: Family) -> tuple[str, ...]:
    """Return one CEL expression for each annotation that constrains the cards.

    Raises:
        RejectedPod: for a use-list without a member, or text that CEL cannot carry.
    """
    names = family.annotations
    builders: tuple[tuple[str, Callable[[list[str], Family], str], bool], ...] = (
        (names.use_type, _type_matches, True),
        (names.nouse_type, _type_matches, False),
        (names.use_uuid, _uuid_matches, True),
        (names.nouse_uuid, _uuid_matches, False),
    )
    found = (
        _selector(annotations, name, family, matches=matches, wanted=wanted)
        for name, matches, wanted in builders
        if name in annotations
    )
    return tuple(expression for expression in found if expression)


def attribute_equals_memory(family: Family, memory_mib: int) -> str:
    """Return a condition that a card has exactly this much memory, in MiB."""
    capacity = f"device.capacity[{literal(family.driver)}]"
    size = f'quantity("{memory_mib}Mi")'
    return f'"memory" in {capacity} && {capacity}.memory.compareTo({size}) == 0'


def literal(text: str) -> str:
    """Write text as a CEL string literal.

    Raises:
        ValueError: for control characters and lone surrogates, which no card's name contains.
    """
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in text):
        raise ValueError("found a control character or half a character")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _selector(
    annotations: Json,
    name: str,
    family: Family,
    *,
    matches: Callable[[list[str], Family], str],
    wanted: bool,
) -> str:
    """Build the condition of one annotation, or "" when it does not constrain."""
    path = f"metadata.annotations[{name}]"
    value = annotations[name]
    if not isinstance(value, str):
        raise RejectedPod(path, f"found {type(value).__name__}, expected text")
    if not value.strip(_GO_SPACE):
        return ""
    members = [member for part in value.split(",") if (member := part.strip(_GO_SPACE))]
    if not members:
        if wanted:
            raise RejectedPod(
                path, f"found {value!r}, which matches no card", "name a card or remove it"
            )
        return ""
    try:
        expression = matches(members, family)
    except ValueError as error:
        raise RejectedPod(path, f"{error} in {value!r}, expected printable text") from error
    return _checked(expression if wanted else f"!({expression})", path)


def _checked(expression: str, path: str) -> str:
    if len(expression.encode()) > _LONGEST:
        raise RejectedPod(
            path,
            f"the list makes a condition of {len(expression.encode())} bytes, expected at most "
            f"{_LONGEST}, Kubernetes' limit",
            "name fewer cards, or a part of a name that they share",
        )
    return expression


def _type_matches(members: list[str], family: Family) -> str:
    """Build "the name that HAMi registered contains one of these", ignoring ASCII case."""
    terms = sorted({member.translate(_ASCII_UPPER) for member in members})
    held = _attribute(family, family.type_attribute)
    name = f"{_registered_name(held, family)}.upperAscii()"
    tests = " || ".join(f"name.contains({literal(term)})" for term in terms)
    return f"{_present(family, family.type_attribute)} && cel.bind(name, {name}, {tests})"


def _registered_name(held: str, family: Family) -> str:
    """Build the name under which legacy registered a card, from its raw model name.

    With old names accepted, `<prefix>-<model>` serves both: a model that starts with the prefix was
    registered bare, and whatever the bare name contains, the prefixed one contains too.
    """
    prefixed = f"({literal(family.type_name_prefix + '-')} + {held})"
    if family.accept_old_type_names:
        return prefixed
    return f"({held}.startsWith({literal(family.type_name_prefix)}) ? {held} : {prefixed})"


def _uuid_matches(members: list[str], family: Family) -> str:
    """Build "the UUID is one of these", exactly."""
    known = ", ".join(literal(member) for member in sorted(set(members)))
    held = _attribute(family, family.uuid_attribute)
    return f"{_present(family, family.uuid_attribute)} && {held} in [{known}]"


def _attribute(family: Family, attribute: str) -> str:
    return f"device.attributes[{literal(family.driver)}].{attribute}"


def _present(family: Family, attribute: str) -> str:
    return f"{literal(attribute)} in device.attributes[{literal(family.driver)}]"
