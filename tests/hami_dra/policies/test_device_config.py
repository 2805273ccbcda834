"""HAMi's device configuration becomes a policy, and nothing gets lost without a word."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration import Json, Policy
from hami_dra.migration.presets import PRESETS
from hami_dra.policies import PolicyFileError, parse
from hami_dra.policies.device_config import import_device_config
from hami_dra.policies.render import render

NVIDIA: Json = {
    "resourceCountName": "nvidia.com/gpu",
    "resourceMemoryName": "nvidia.com/gpumem",
    "resourceMemoryPercentageName": "nvidia.com/gpumem-percentage",
    "resourceCoreName": "nvidia.com/gpucores",
    "resourcePriorityName": "nvidia.com/priority",
    "overwriteEnv": False,
    "defaultMemory": 0,
    "defaultCores": 0,
    "defaultGPUNum": 1,
    "memoryFactor": 1,
    "deviceSplitCount": 10,
    "deviceMemoryScaling": 1,
    "deviceCoreScaling": 1,
    "preConfiguredDeviceMemory": 0,
    "enableNumaTopology": False,
    "gpuCorePolicy": "default",
    "runtimeClassName": "",
    "migProfileAllowlist": [{"models": ["A30"], "profiles": ["1g.6gb", "2g.12gb"]}],
}

HYGON = {
    "resourceCountName": "hygon.com/hcunum",
    "resourceMemoryName": "hygon.com/hcumem",
    "resourceCoreName": "hygon.com/hcucores",
    "memoryFactor": 1,
}

ENFLAME = {
    "resourceNameGCU": "enflame.com/gcu",
    "resourceNameDRSGCU": "enflame.com/drs-gcu",
    "resourceNameGCUMemory": "enflame.com/gcu-memory",
    "resourceNameGCUCore": "enflame.com/gcu-core",
}


def chip(word: str, **different: Any) -> Json:  # noqa: ANN401 - any YAML
    """Return a chip as HAMi's chart lists it: with the numbers of its preset."""
    family = PRESETS[word]
    sizes = family.memory_steps
    return {
        "chipName": family.model,
        "commonWord": word,
        "resourceName": family.resources.count,
        "resourceMemoryName": family.resources.memory,
        "resourceCoreName": family.resources.cores,
        "memoryAllocatable": family.memory_capacity,
        "memoryCapacity": family.memory_capacity,
        "memoryFactor": 1,
        "aiCore": 20,
        "aiCPU": 7,
        "templates": [{"name": f"vir{n}", "memory": m, "aiCore": n} for n, m in enumerate(sizes)],
        **({"superPod": True} if family.count_multiple == 2 else {}),
        **different,
    }


def imported(config: Json) -> tuple[Policy, list[str]]:
    found = import_device_config(render(config), "device-config.yaml")
    return parse(found.policy, "imported"), list(found.remarks)


def test_hamis_defaults_become_the_presets_by_name() -> None:
    """Where every number agrees, a policy is the list of the cluster's families."""
    chips = [chip(word) for word in PRESETS if word.startswith("Ascend")]
    config = {
        "nvidia": NVIDIA,
        "hygon": HYGON,
        "enflame": ENFLAME,
        "vnpus": {"hamiVnpuCore": False, "configs": chips},
    }

    text = import_device_config(render(config), "c").policy

    words = [each["commonWord"] for each in chips]
    listed = "".join(
        f"  - {n}\n" for n in ["nvidia", "hygon-hcu", "enflame", "enflame-drs", *words]
    )
    assert text.partition("families:\n")[2] == listed


def test_the_knobs_of_nvidia_are_kept() -> None:
    """What HAMi's webhook and scheduler did by configuration, a migration does by policy."""
    policy, _ = imported(
        {
            "nvidia": {
                **NVIDIA,
                "resourceCountName": "example.com/gpu",
                "defaultMemory": 4096,
                "defaultCores": 25,
                "defaultGPUNum": 2,
                "memoryFactor": 1024,
                "overwriteEnv": True,
                "gpuCorePolicy": "force",
                "libCudaLogLevel": 3,
                "runtimeClassName": "nvidia",
            }
        }
    )

    (family,) = policy.families
    assert family.resources.count == "example.com/gpu"
    assert (family.default_memory, family.default_cores) == (4096, 25)
    assert (family.default_count, family.memory_factor) == (2, 1024)
    assert (policy.hide_cards, policy.core_policy) == (True, "force")
    assert (policy.log_level, policy.runtime_class) == ("3", "nvidia")


def test_a_missing_knob_is_what_it_was_to_hami() -> None:
    """HAMi reads nothing, zero or false where a key is missing, not the chart's default."""
    (family,) = imported({"nvidia": {"resourceCountName": "nvidia.com/gpu"}})[0].families

    assert family.card_names == ("nvidia.com/gpu",)
    assert family.default_count == 0


def test_a_disabled_core_limit_becomes_the_policy_that_disables_it() -> None:
    """Both of HAMi's switches end in one variable; where they disagree, it is said."""
    alone, _ = imported({"nvidia": {**NVIDIA, "disableCoreLimit": True}})
    both, said = imported(
        {"nvidia": {**NVIDIA, "disableCoreLimit": True, "gpuCorePolicy": "force"}}
    )

    assert (alone.core_policy, both.core_policy) == ("disable", "force")
    assert "nvidia.disableCoreLimit: left out; gpuCorePolicy says otherwise" in said


def test_what_belongs_to_the_nodes_is_said_one_by_one() -> None:
    """Nothing is dropped without a line of its own."""
    _, said = imported({"nvidia": {**NVIDIA, "surprise": 1}})

    assert [line.split(":")[0] for line in said] == [
        "nvidia.deviceSplitCount",
        "nvidia.deviceMemoryScaling",
        "nvidia.deviceCoreScaling",
        "nvidia.preConfiguredDeviceMemory",
        "nvidia.migProfileAllowlist",
        "nvidia.enableNumaTopology",
        "nvidia.surprise",
    ]


@pytest.mark.parametrize("vendor", ["cambricon", "metax", "iluvatars", "kunlun", "awsneuron", "x"])
def test_vendors_without_a_driver_are_listed(vendor: str) -> None:
    """Their pods stay as they are, and a person should know."""
    policy, said = imported({vendor: {"resourceCountName": "a"}})

    assert policy.families == ()
    assert said == [
        f"{vendor}: left out; no DRA driver for it is known, so its pods stay as they are"
    ]


def test_a_chip_with_other_numbers_overrides_its_preset() -> None:
    """Only what differs is written, and shares are put in order."""
    different = chip(
        "Ascend910B4",
        memoryCapacity=30000,
        memoryFactor=1024,
        templates=[{"memory": 16000}, {"memory": 8000}, {"memory": "?"}],
    )
    policy, said = imported({"vnpus": {"configs": [different]}})

    (family,) = policy.families
    assert (family.memory_capacity, family.memory_factor) == (30000, 1024)
    assert family.memory_steps == (8000, 16000)
    assert family.resources == PRESETS["Ascend910B4"].resources
    assert "vnpus.configs[0].templates: those without a whole number of memory left out" in said


def test_a_chip_that_no_preset_knows_is_written_out() -> None:
    """A later chip keeps its own names, and comes in pairs only if it says so."""
    later = {"chipName": 920, "commonWord": "Ascend920", "resourceName": "huawei.com/Ascend920"}
    pair = {**later, "commonWord": "Ascend930", "resourceName": "b/c", "superPod": True}
    policy, _ = imported({"vnpus": [later, pair]})

    one, two = policy.families
    assert (one.name, one.model, one.count_multiple) == ("Ascend920", "920", 1)
    assert one.annotations.use_uuid == "hami.io/use-Ascend920-uuid"
    assert (one.memory_capacity, one.memory_steps, one.resources.memory) == (0, (), "")
    assert two.count_multiple == 2


def test_910c_comes_in_pairs_unless_it_says_otherwise() -> None:
    """Releases without the key `superPod` had the rule built in."""
    without = {key: value for key, value in chip("Ascend910C").items() if key != "superPod"}
    apart, _ = imported({"vnpus": [chip("Ascend910C", superPod=False)]})

    assert imported({"vnpus": [without]})[0].families[0].count_multiple == 2
    assert apart.families[0].count_multiple == 1


def test_settings_of_chips_that_a_policy_has_once_are_said() -> None:
    """A policy has one RuntimeClass and one hideCards, which are NVIDIA's."""
    block = {"configs": [chip("Ascend310P", runtimeClassName="ascend", overwriteEnv=True)]}
    _, said = imported({"vnpus": {**block, "hamiVnpuMode": "template", "surprise": 1}})

    assert "vnpus.hamiVnpuMode: left out; it belongs to the node agent, not to the policy" in said
    assert any(line.startswith("vnpus: runtimeClassName ascend left out") for line in said)
    assert any(line.startswith("vnpus: overwriteEnv True left out") for line in said)
    assert "vnpus.surprise: left out; it is none that is known of HAMi" in said


@pytest.mark.parametrize("spelling", ["dcu", "hcu"])
def test_hygon_goes_by_its_resource_names(spelling: str) -> None:
    """Older releases say DCU, newer ones HCU."""
    names = {key: str(value).replace("hcu", spelling) for key, value in HYGON.items()}
    policy, said = imported({"hygon": {**names, "memoryFactor": 1}})

    assert policy.families == (PRESETS[f"hygon-{spelling}"],)
    assert any(line.startswith("hygon: look at coreUnits") for line in said)


def test_enflame_is_two_families_without_a_class() -> None:
    """Obsolete names are said; the DeviceClass is for the reader to name."""
    policy, said = imported({"enflame": {"resourceNameDRSGCU": "a/b", "resourceNameVGCU": "c"}})

    assert [family.resources.count for family in policy.families] == ["enflame.com/gcu", "a/b"]
    assert "enflame.resourceNameVGCU: left out; it is obsolete, and nothing reads it" in said
    assert any(line.startswith("enflame: look at deviceClass") for line in said)


def test_what_cannot_be_kept_is_left_out_by_name() -> None:
    """One bad value does not stand in the way of the others."""
    policy, said = imported(
        {
            "nvidia": {**NVIDIA, "defaultCores": -1, "gpuCorePolicy": "odd", "defaultMemory": 7},
            "hygon": {**HYGON, "resourceCoreName": "nvidia.com/gpucores"},
        }
    )

    assert [family.default_memory for family in policy.families] == [7]
    assert "families[0].defaultCores of the policy: left out; found the number -1" in said[-3]
    assert "corePolicy of the policy: left out; found 'odd', expected '', 'default'" in said[-2]
    assert "families[1] of the policy: left out; found 'nvidia.com/gpucores'" in said[-1]


def test_the_config_map_is_opened() -> None:
    """What kubectl prints is as good as the file inside it."""
    inner = render({"nvidia": {**NVIDIA, "defaultMemory": 9}})
    text = render({"kind": "ConfigMap", "data": {"device-config.yaml": inner}})

    assert "defaultMemory: 9" in import_device_config(text, "c").policy


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "c:1: found a list, expected HAMi's device-config.yaml or the ConfigMap"),
        ("kind: Pod\n", "c:1: found a Pod, expected HAMi's device-config.yaml or the ConfigMap"),
        ("kind: ConfigMap\ndata: {a: b}\n", "c:2: data.device-config.yaml: found nothing"),
        ("nvidia: {}\nnvidia: {}\n", "c:2: nvidia: found twice"),
        ("kind: ConfigMap\ndata:\n  device-config.yaml: |\n    a: [\n", "c[device-config.yaml]:2"),
    ],
)
def test_what_is_no_device_configuration_is_refused(text: str, said: str) -> None:
    """The message says where and what."""
    with pytest.raises(PolicyFileError) as caught:
        import_device_config(text, "c")

    assert said in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**33) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


def blocks(keys: list[str]) -> st.SearchStrategy[Json]:
    return st.dictionaries(st.sampled_from(keys) | st.text(), values, max_size=6)


chips = st.builds(lambda base, above: {**base, **above}, st.just(chip("Ascend310P")), blocks(["x"]))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "nvidia": st.builds(
                lambda above: {**NVIDIA, **above}, blocks([*NVIDIA, "libCudaLogLevel"])
            ),
            "hygon": blocks(list(HYGON)),
            "enflame": blocks(list(ENFLAME)) | values,
            "vnpus": st.builds(lambda configs: {"configs": configs}, st.lists(chips | values)),
            "other": values,
        },
    ).filter(bool)
)
def test_whatever_is_imported_loads(config: Json) -> None:
    """The output is a policy file for every configuration, sane or not."""
    parse(import_device_config(render(config), "c").policy, "imported")
