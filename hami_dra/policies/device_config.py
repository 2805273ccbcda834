"""Turn HAMi's `device-config.yaml` into a policy file, and say what a policy cannot hold.

A key that the file does not have means what it meant to HAMi: nothing, zero or false.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hami_dra.migration import Json, Policy
from hami_dra.policies.ascend import ascend
from hami_dra.policies.file import HEADER, parse
from hami_dra.policies.part import Part, overrides, with_preset
from hami_dra.policies.problem import FieldPath, PolicyFileError, Problem, dotted, found
from hami_dra.policies.render import render
from hami_dra.policies.text import Written, read_yaml
from hami_dra.policies.vendors import enflame, hygon

_FILE: Final = "device-config.yaml"

_NODE_SIDE: Final = (
    "deviceSplitCount",
    "deviceMemoryScaling",
    "deviceCoreScaling",
    "preConfiguredDeviceMemory",
    "migProfileAllowlist",
    "knownMigGeometries",
    "enableNumaTopology",
)
"""Keys that say how nodes publish their cards."""

_RESOURCES: Final = {
    "resourceCountName": "count",
    "resourceMemoryName": "memory",
    "resourceMemoryPercentageName": "percentage",
    "resourceCoreName": "cores",
    "resourcePriorityName": "priority",
}

_AMOUNTS: Final = {
    "defaultMemory": "defaultMemory",
    "defaultCores": "defaultCores",
    "defaultGPUNum": "defaultCount",
    "memoryFactor": "memoryFactor",
}

_POD_WIDE: Final = {
    "overwriteEnv": "hideCards",
    "gpuCorePolicy": "corePolicy",
    "runtimeClassName": "runtimeClass",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a device configuration.

    Attributes:
        policy: the text of a policy file, which loads.
        remarks: what it does not hold, and what to look at, one line each.
    """

    policy: str
    remarks: tuple[str, ...]


def import_device_config(text: str, source: str) -> Imported:
    """Translate a `device-config.yaml`, bare or inside its ConfigMap.

    Raises:
        PolicyFileError: if the text is neither.
    """
    config = _config(read_yaml(text, source), source)
    parts = [_part(key, value) for key, value in config.items()]
    fields: Json = {"families": [family for part in parts for family in part.families]}
    for part in parts:
        fields |= part.fields
    remarks = [remark for part in parts for remark in part.remarks]
    document = {**HEADER, **fields}
    remarks += _drop_what_cannot_load(document)
    return Imported(render(document), tuple(remarks))


def _config(written: Written, source: str) -> Json:
    """Return the configuration, out of its ConfigMap where it is in one."""
    if written.problems:
        raise PolicyFileError(source, written.problems)
    value = written.value
    if isinstance(value, dict) and value.get("kind") == "ConfigMap":
        data = value.get("data")
        inner = data.get(_FILE) if isinstance(data, dict) else None
        if not isinstance(inner, str):
            line = written.line(("data",))
            message = f"{found(inner)}, expected the text of HAMi's device configuration"
            raise PolicyFileError(source, [Problem(line, ("data", _FILE), message)])
        return _config(read_yaml(inner, f"{source}[{_FILE}]"), f"{source}[{_FILE}]")
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(value, dict) or isinstance(kind, str):
        # Of another object no vendor would be known, and a policy without any converts nothing.
        what = f"found a {kind}" if kind else found(value)
        message = f"{what}, expected HAMi's {_FILE} or the ConfigMap that holds it"
        raise PolicyFileError(source, [Problem(1, (), message)])
    return value


def _part(key: str, value: Any) -> Part:  # noqa: ANN401 - any YAML
    readers = {"nvidia": _nvidia, "hygon": hygon, "enflame": enflame, "vnpus": ascend}
    if key not in readers:
        what = "no DRA driver for it is known, so its pods stay as they are"
        return Part(remarks=[f"{key}: left out; {what}"])
    if key != "vnpus" and not isinstance(value, dict):
        return Part(remarks=[f"{key}: left out; {found(value)}, expected an object"])
    return readers[key](value)


def _nvidia(block: Json) -> Part:
    part = Part()
    if not block.get("resourceCountName"):
        part.remarks.append("nvidia: left out; without resourceCountName HAMi converts nothing")
        return part
    resources = {ours: block.get(theirs) or "" for theirs, ours in _RESOURCES.items()}
    amounts = {ours: block.get(theirs) or 0 for theirs, ours in _AMOUNTS.items()}
    # To HAMi, no factor and a factor of 0 are 1.
    amounts["memoryFactor"] = amounts["memoryFactor"] or 1
    part.families.append(with_preset("nvidia", {"resources": resources, **amounts}))
    part.fields |= _pod_wide(block, part)
    known = {*_RESOURCES, *_AMOUNTS, *_POD_WIDE, "libCudaLogLevel", "disableCoreLimit"}
    part.remarks += [
        f"nvidia.{key}: left out; it belongs to the node agent, not to the policy"
        for key in _NODE_SIDE
        if key in block
    ]
    part.leave_out(block, "nvidia", {*known, *_NODE_SIDE})
    return part


def _pod_wide(block: Json, part: Part) -> Json:
    fields = {ours: block[theirs] for theirs, ours in _POD_WIDE.items() if theirs in block}
    if fields.get("corePolicy") == "default":
        del fields["corePolicy"]
    if block.get("libCudaLogLevel") is not None:
        fields["logLevel"] = str(block["libCudaLogLevel"])
    if block.get("disableCoreLimit"):
        if not fields.get("corePolicy"):
            fields["corePolicy"] = "disable"
        else:
            part.remarks.append("nvidia.disableCoreLimit: left out; gpuCorePolicy says otherwise")
    return overrides(fields, Policy().model_dump(mode="json", by_alias=True))


def _drop_what_cannot_load(document: Json) -> Iterator[str]:
    """Take out what is no valid value, so that the rest loads, and say so."""
    while True:
        try:
            parse(render(document), _FILE)
        except PolicyFileError as error:
            problem = error.problems[0]
            path = _delete(document, problem.path)
            yield f"{dotted(path)} of the policy: left out; {problem.message}"
        else:
            return


def _delete(document: Json, path: FieldPath) -> FieldPath:
    """Delete a field, or all of a family that lacks its names; return what is gone."""
    if path[0] != "families":
        del document[str(path[0])]
        return path[:1]
    families, index = document["families"], path[1]
    field = str(path[2]) if path[2:] else "name"
    if field in {"name", "resources"} or field not in families[index]:
        del families[index]
        return path[:2]
    del families[index][field]
    return path[:3]
