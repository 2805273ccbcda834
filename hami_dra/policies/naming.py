"""Names in a policy that reach the API server, and which of them it would refuse.

It would refuse them pod by pod, long after the policy was found to be one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hami_dra.migration import Family, Policy
from hami_dra.policies.problem import FieldPath, found

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_WORD: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of name.

    Attributes:
        form: a regular expression.
        expected: what a person is told.
        longest: in characters.
        may_be_empty: whether a name can be left out.
    """

    form: str
    expected: str
    longest: int = 317
    may_be_empty: bool = True

    def fits(self, name: str) -> bool:
        """Tell whether the API server takes a name."""
        if not name:
            return self.may_be_empty
        return len(name) <= self.longest and re.fullmatch(self.form, name) is not None


_RESOURCE: Final = _Kind(f"{_DOMAIN}/{_WORD}", "a resource such as example.com/gpu")
# Of annotations and drivers, the API server takes domains in upper case too.
_ANNOTATION: Final = _Kind(
    f"(?i:({_DOMAIN}/)?{_WORD})", "an annotation such as example.com/use-gpu"
)
_OBJECT: Final = _Kind(_DOMAIN, "a name such as gpu.example.com", longest=253)
_DRIVER: Final = _Kind(f"(?i:{_DOMAIN})", "a driver such as gpu.example.com", longest=63)
_PREFIX: Final = _Kind(
    _LABEL, "lower-case letters, digits and dashes, such as gpu", longest=63, may_be_empty=False
)
_CAPACITY: Final = _Kind("[A-Za-z_][A-Za-z0-9_]*", "a word such as memory", longest=32)
_ATTRIBUTE: Final = _Kind(
    "[A-Za-z_][A-Za-z0-9_]*", "a word such as productName", longest=32, may_be_empty=False
)
_VARIABLE: Final = _Kind("[ -<>-~]+", "printable characters without =")

_GROUPS: Final = {
    "resources": _RESOURCE,
    "annotations": _ANNOTATION,
    "capacities": _CAPACITY,
}
"""Objects of a family that hold nothing but names."""

_FIELDS: Final = {
    "deviceClass": _OBJECT,
    "migDeviceClass": _OBJECT,
    "driver": _DRIVER,
    "entryPrefix": _PREFIX,
    "typeAttribute": _ATTRIBUTE,
    "uuidAttribute": _ATTRIBUTE,
    "priorityVariable": _VARIABLE,
    "visibleVariable": _VARIABLE,
}
"""Fields of a family that are names."""


def impossible_names(policy: Policy) -> Iterator[tuple[FieldPath, str]]:
    """Yield path and message of each name that the API server would refuse."""
    for path, name, kind in _names(policy):
        if not kind.fits(name):
            yield path, f"{found(name)}, expected {kind.expected}"


def _names(policy: Policy) -> Iterator[tuple[FieldPath, str, _Kind]]:
    yield ("runtimeClass",), policy.runtime_class, _OBJECT
    for key, name in policy.hints.model_dump(by_alias=True).items():
        yield ("hints", key), name, _ANNOTATION
    for index, family in enumerate(policy.families):
        for path, name, kind in _names_of(family):
            yield ("families", index, *path), name, kind


def _names_of(family: Family) -> Iterator[tuple[FieldPath, str, _Kind]]:
    fields = family.model_dump(by_alias=True)
    for group, kind in _GROUPS.items():
        for key, name in fields[group].items():
            yield (group, key), name, kind
    for key, kind in _FIELDS.items():
        yield (key,), fields[key], kind
    if family.cores_require is not None:
        yield ("coresRequire", "name"), family.cores_require.name, _ANNOTATION
