"""The block `vnpus` of a HAMi device configuration: Huawei's Ascend chips."""

from typing import Any, Final

from hami_dra.migration import Json
from hami_dra.migration.presets import PRESETS
from hami_dra.policies.part import Part, with_preset
from hami_dra.policies.problem import found

_ANY_CHIP: Final = "Ascend910A"
"""The preset for a chip that has none; what is its own is written out."""

_NODE_SIDE: Final = frozenset({"memoryAllocatable", "aiCore", "aiCPU"})

_MODES: Final = frozenset({"hamiVnpuCore", "hamiVnpuMode", "enpuPolicy"})

_POD_WIDE: Final = ("overwriteEnv", "runtimeClassName")

_CHIP: Final = frozenset(
    {
        "chipName",
        "commonWord",
        "resourceName",
        "resourceMemoryName",
        "resourceCoreName",
        "memoryCapacity",
        "memoryFactor",
        "superPod",
        "templates",
    }
)


def ascend(block: Any) -> Part:  # noqa: ANN401 - any YAML
    """Translate the block, in its present form or as the bare list of chips that it once was."""
    part = Part()
    wrapper = block if isinstance(block, dict) else {"configs": block}
    chips = wrapper.get("configs")
    if not isinstance(chips, list):
        part.remarks.append(f"vnpus.configs: left out; {found(chips)}, expected a list of chips")
        return part
    part.leave_out(wrapper, "vnpus", {"configs", *_MODES, *_POD_WIDE})
    part.remarks += [
        f"vnpus.{key}: left out; it belongs to the node agent, not to the policy"
        for key in sorted(_MODES & wrapper.keys())
    ]
    for index, chip in enumerate(chips):
        _chip(chip, f"vnpus.configs[{index}]", part)
    _remark_on_all([wrapper, *(chip for chip in chips if isinstance(chip, dict))], part)
    return part


def _chip(chip: Any, path: str, part: Part) -> None:  # noqa: ANN401 - any YAML
    if not isinstance(chip, dict) or not chip.get("commonWord") or not chip.get("resourceName"):
        part.remarks.append(f"{path}: left out; expected a chip with commonWord and resourceName")
        return
    part.leave_out(chip, path, {*_CHIP, *_NODE_SIDE, *_POD_WIDE})
    word = str(chip["commonWord"])
    known = PRESETS.get(word)
    preset = word if known is not None and known.model else _ANY_CHIP
    wanted = {
        "name": word,
        "resources": {
            "count": chip["resourceName"],
            "memory": chip.get("resourceMemoryName") or "",
            "cores": chip.get("resourceCoreName") or "",
        },
        "annotations": {
            "useUuid": f"hami.io/use-{word}-uuid",
            "nouseUuid": f"hami.io/no-use-{word}-uuid",
        },
        # A bare 910 is a number to YAML.
        "model": str(chip.get("chipName") or ""),
        "memoryCapacity": chip.get("memoryCapacity") or 0,
        "memoryFactor": chip.get("memoryFactor") or 1,
        "memorySteps": _steps(chip, path, part),
    }
    if "superPod" in chip:
        wanted["countMultiple"] = 2 if chip["superPod"] else 1
    elif preset != word:
        wanted["countMultiple"] = 1
    part.families.append(with_preset(preset, wanted))


def _steps(chip: Json, path: str, part: Part) -> list[int]:
    """Return the shares that the hardware can make, in ascending order."""
    templates = chip.get("templates") or []
    entries = templates if isinstance(templates, list) else [templates]
    sizes = [each.get("memory") if isinstance(each, dict) else each for each in entries]
    whole = [size for size in sizes if isinstance(size, int) and not isinstance(size, bool)]
    if len(whole) < len(sizes):
        part.remarks.append(f"{path}.templates: those without a whole number of memory left out")
    return sorted(set(whole))


def _remark_on_all(blocks: list[Json], part: Part) -> None:
    """Remark once on what every chip has."""
    keys = sorted(_NODE_SIDE & {key for block in blocks for key in block})
    if keys:
        part.remarks.append(
            f"vnpus.configs: {', '.join(keys)} left out; they belong to the node agent"
        )
    for key in _POD_WIDE:
        values = sorted({str(block[key]) for block in blocks if block.get(key)})
        if values:
            part.remarks.append(
                f"vnpus: {key} {', '.join(values)} left out; a policy has one for all pods,"
                " and NVIDIA's is used"
            )
    if part.families:
        part.remarks.append(
            "vnpus: HAMi converts these chips only where it runs with --enable-ascend; remove the"
            " families that the cluster has not"
        )
