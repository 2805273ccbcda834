"""What a policy changes, in one line each."""

from collections.abc import Iterator
from typing import Any

from hami_dra.migration import Family, Policy
from hami_dra.migration.presets import PRESETS
from hami_dra.policies.problem import FieldPath, dotted


def differences(policy: Policy) -> list[str]:
    """List what differs: fields from the default policy, fields of a family from its preset."""
    default = Policy()
    found = list(_families(policy, default))
    written, usual = (each.model_dump(mode="json", by_alias=True) for each in (policy, default))
    for key, value in written.items():
        if key != "families":
            found += _compare(value, usual[key], (key,))
    return found


def _families(policy: Policy, default: Policy) -> Iterator[str]:
    names, usual = ([family.name for family in each.families] for each in (policy, default))
    if names != usual:
        yield f"families: {', '.join(names) or 'none'} (default {', '.join(usual)})"
    for index, family in enumerate(policy.families):
        preset = PRESETS.get(family.name, Family())
        written, base = (each.model_dump(mode="json", by_alias=True) for each in (family, preset))
        yield from _compare(written, base, ("families", index))


def _compare(value: Any, usual: Any, path: FieldPath) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict) and isinstance(usual, dict):
        for key, member in value.items():
            yield from _compare(member, usual[key], (*path, key))
    elif value != usual:
        yield f"{dotted(path)}: {_shown(value)} (default {_shown(usual)})"


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return f"[{', '.join(_shown(item) for item in value)}]"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_shown(member)}" for key, member in value.items())
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'
