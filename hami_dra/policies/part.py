"""What one block of a HAMi device configuration becomes."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from hami_dra.migration import Json
from hami_dra.migration.presets import PRESETS


@dataclass(slots=True)
class Part:
    """A block in the making.

    Attributes:
        families: entries for the policy's families.
        fields: other fields of the policy.
        remarks: what the policy does not hold, and what to look at.
    """

    families: list[str | Json] = field(default_factory=list)
    fields: Json = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def leave_out(self, block: Json, path: str, known: Collection[str]) -> None:
        """Remark on the keys of a block that are not known."""
        for key in block:
            if key not in known:
                self.remarks.append(f"{path}.{key}: left out; it is none that is known of HAMi")


def with_preset(name: str, wanted: Json) -> str | Json:
    """Return an entry of families: a preset's name, and what is different from it."""
    above = overrides(wanted, PRESETS[name].model_dump(mode="json", by_alias=True))
    return {"preset": name, **above} if above else name


def overrides(wanted: Json, base: Json) -> Json:
    """Return the wanted values that differ from a base; objects are compared member by member."""
    above: dict[str, Any] = {}
    for key, value in wanted.items():
        if isinstance(value, dict) and isinstance(base[key], dict):
            if inner := overrides(value, base[key]):
                above[key] = inner
        elif value != base[key]:
            above[key] = value
    return above
