"""The blocks `hygon` and `enflame` of a HAMi device configuration."""

from typing import Final

from hami_dra.migration import Json
from hami_dra.policies.part import Part, with_preset

_HYGON: Final = {
    "resourceCountName": "count",
    "resourceMemoryName": "memory",
    "resourceCoreName": "cores",
}

_GCU: Final = {"resourceNameGCU": "count"}

_DRS: Final = {
    "resourceNameDRSGCU": "count",
    "resourceNameGCUMemory": "memory",
    "resourceNameGCUCore": "cores",
}

_OBSOLETE: Final = ("resourceNameVGCU", "resourceNameVGCUPercentage")


def hygon(block: Json) -> Part:
    """Translate Hygon's block; its resource names tell the older spelling from the newer one."""
    part = Part()
    part.leave_out(block, "hygon", {*_HYGON, "memoryFactor"})
    count = block.get("resourceCountName")
    if not count:
        part.remarks.append("hygon: left out; without resourceCountName HAMi converts nothing")
        return part
    preset = "hygon-hcu" if "hcu" in str(count) else "hygon-dcu"
    resources = {ours: block.get(theirs) or "" for theirs, ours in _HYGON.items()}
    wanted = {"resources": resources, "memoryFactor": block.get("memoryFactor") or 1}
    part.families.append(with_preset(preset, wanted))
    part.remarks.append(
        "hygon: look at coreUnits; its driver counts compute in units of the card, and pods that"
        " name a part of the cores are refused until the policy says how many a card has"
    )
    return part


def enflame(block: Json) -> Part:
    """Translate Enflame's block: whole cards and slices of cards are two families."""
    part = Part()
    part.leave_out(block, "enflame", {*_GCU, *_DRS, *_OBSOLETE})
    part.remarks += [
        f"enflame.{key}: left out; it is obsolete, and nothing reads it"
        for key in _OBSOLETE
        if block.get(key)
    ]
    for preset, names in (("enflame", _GCU), ("enflame-drs", _DRS)):
        resources = {ours: block[theirs] for theirs, ours in names.items() if block.get(theirs)}
        part.families.append(with_preset(preset, {"resources": resources}))
    part.remarks.append(
        "enflame: look at deviceClass; no DRA driver is known, and pods that ask for these cards"
        " stay as they are until the policy names a DeviceClass"
    )
    return part
