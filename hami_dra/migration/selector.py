"""Write: annotations that pick cards become CEL conditions on attributes (rulings 12, 13).

User text enters only as an escaped CEL literal. Every attribute is guarded, because one missing
attribute aborts the scheduling of the pod instead of skipping the card.
"""

import unicodedata
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from hami_dra.migration.family import Family
from hami_dra.migration.notice import RejectedPod

# More different choices than pods make at one time. Both bounds keep what is remembered small.
_REMEMBERED: Final = 1024
_LONGEST_REMEMBERED: Final = 2 * 1024

_LONGEST: Final = 10 * 1024  # resource.k8s.io/v1: a CEL expression has at most 10 KiB

# What Go's strings.TrimSpace removes. Python's str.strip() would also take \x1c to \x1f.
_GO_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

_ASCII_UPPER: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def selectors(annotations: Mapping[str, object], family: Family) -> tuple[str, ...]:
    """Return the CEL conditions on a pod's cards: the family's own, and one for each annotation.

    Raises:
        RejectedPod: for a use-list without a member, or text that CEL cannot carry.
    """
    names = family.annotations
    every = (names.use_type, names.nouse_type, names.use_uuid, names.nouse_uuid)
    texts = tuple(_text(annotations, n) if n in annotations else "" for n in every)
    if sum(map(len, texts)) > _LONGEST_REMEMBERED:
        return _selectors(texts, family)
    return _remembered(texts, family)


def _text(annotations: Mapping[str, object], name: str) -> str:
    """Return what an annotation says; nothing at all where it is blank."""
    value = annotations[name]
    if not isinstance(value, str):
        path = f"metadata.annotations[{name}]"
        raise RejectedPod(path, f"found {type(value).__name__}, expected text")
    return value.strip(_GO_SPACE)


def model_test(annotations: Mapping[str, object], family: Family) -> Callable[[str], bool]:
    """Return what tells whether the conditions on a pod's cards accept a model's raw name.

    An empty name stands for a card that publishes none.
    """
    names = family.annotations
    wanted, unwanted = (
        _terms(_members(_text(annotations, name) if name in annotations else ""))
        for name in (names.use_type, names.nouse_type)
    )

    def accepts(model: str) -> bool:
        if family.model and model != family.model:
            return False
        name = _registered(model, family).translate(_ASCII_UPPER) if model else ""
        found = [any(term in name for term in terms) for terms in (wanted, unwanted)]
        return (not wanted or found[0]) and not found[1]

    return accepts


def _selectors(texts: tuple[str, ...], family: Family) -> tuple[str, ...]:
    """Return the conditions for use-type, nouse-type, use-UUID and nouse-UUID."""
    names = family.annotations
    every = (
        (names.use_type, _type_matches, True),
        (names.nouse_type, _type_matches, False),
        (names.use_uuid, _uuid_matches, True),
        (names.nouse_uuid, _uuid_matches, False),
    )
    found = [is_model(family)] if family.model else []
    for text, (name, matches, wanted) in zip(texts, every, strict=True):
        if text:
            found.append(_selector(text, name, family, matches=matches, wanted=wanted))
    return tuple(expression for expression in found if expression)


_remembered: Final = lru_cache(maxsize=_REMEMBERED)(_selectors)


def has_memory(driver: str, capacity: str, memory_mib: int, *, at_least: bool = False) -> str:
    """Return the condition that a card has exactly, or at least, this much memory, in MiB."""
    held = f"device.capacity[{literal(driver)}]"
    size = f'quantity("{memory_mib}Mi")'
    compares = ">=" if at_least else "=="
    return f"{literal(capacity)} in {held} && {held}.{capacity}.compareTo({size}) {compares} 0"


def literal(text: str) -> str:
    """Write text as a CEL string literal.

    Raises:
        ValueError: for control characters and lone surrogates, which no card's name contains.
    """
    # Printable text is by far the most common, and one call tells.
    if not text.isprintable() and any(unicodedata.category(c) in {"Cc", "Cs"} for c in text):
        raise ValueError("found a control character or half a character")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _selector(
    text: str,
    name: str,
    family: Family,
    *,
    matches: Callable[[list[str], Family], str],
    wanted: bool,
) -> str:
    """Build the condition of one annotation, or "" when it does not constrain."""
    path = f"metadata.annotations[{name}]"
    members = _members(text)
    if not members:
        if wanted:
            reason = f"found {text!r}, which matches no card"
            raise RejectedPod(path, reason, "name a card or remove it")
        return ""
    # Each is in the condition once at least, so one that is sure to be too long is not built.
    _check_length(sum(map(len, {member.translate(_ASCII_UPPER) for member in members})), path)
    try:
        expression = matches(members, family)
    except ValueError as error:
        raise RejectedPod(path, f"{error} in {text!r}, expected printable text") from error
    expression = expression if wanted else f"!({expression})"
    _check_length(len(expression.encode()), path)
    return expression


def _members(text: str) -> list[str]:
    return [member for part in text.split(",") if (member := part.strip(_GO_SPACE))]


def _terms(members: list[str]) -> list[str]:
    """Return what an upper-case name must contain one of."""
    return sorted({member.translate(_ASCII_UPPER) for member in members})


def _check_length(size: int, path: str) -> None:
    """Refuse a condition of at least so many bytes if Kubernetes would."""
    if size > _LONGEST:
        raise RejectedPod(
            path,
            f"the list makes a condition of {size} bytes or more, expected at most {_LONGEST},"
            " Kubernetes' limit",
            "name fewer cards, or a part of a name that they share",
        )


def is_model(family: Family) -> str:
    """Build "the card is this very model", for chips that share a DeviceClass."""
    present = _present(family, family.type_attribute)
    return f"{present} && {_attribute(family, family.type_attribute)} == {literal(family.model)}"


def _type_matches(members: list[str], family: Family) -> str:
    """Build "the name that HAMi registered contains one of these", ignoring ASCII case."""
    held = _attribute(family, family.type_attribute)
    name = f"{_registered_name(held, family)}.upperAscii()"
    tests = " || ".join(f"name.contains({literal(term)})" for term in _terms(members))
    return f"{_present(family, family.type_attribute)} && cel.bind(name, {name}, {tests})"


def _registered_name(held: str, family: Family) -> str:
    """Build the name under which legacy registered a card, from its raw model name.

    With old names accepted, `<prefix>-<model>` serves both: a model that starts with the prefix was
    registered bare, and whatever the bare name contains, the prefixed one contains too.
    """
    if not family.type_name_prefix:
        return held
    prefixed = f"({literal(family.type_name_prefix + '-')} + {held})"
    if family.accept_old_type_names:
        return prefixed
    return f"({held}.startsWith({literal(family.type_name_prefix)}) ? {held} : {prefixed})"


def _registered(model: str, family: Family) -> str:
    """Return the name of `_registered_name` for a model that is known."""
    prefix = family.type_name_prefix
    bare = not prefix or (not family.accept_old_type_names and model.startswith(prefix))
    return model if bare else f"{prefix}-{model}"


def _uuid_matches(members: list[str], family: Family) -> str:
    """Build "the UUID is one of these", exactly."""
    known = ", ".join(literal(member) for member in sorted(set(members)))
    held = _attribute(family, family.uuid_attribute)
    return f"{_present(family, family.uuid_attribute)} && {held} in [{known}]"


def _attribute(family: Family, attribute: str) -> str:
    return f"device.attributes[{literal(family.driver)}].{attribute}"


def _present(family: Family, attribute: str) -> str:
    return f"{literal(attribute)} in device.attributes[{literal(family.driver)}]"
