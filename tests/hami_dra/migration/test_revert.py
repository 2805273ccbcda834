"""What a migration did can be undone from the record it left, for every pod."""

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from hami_dra.migration import Cards, Family, Json, Policy, RejectedPod, migrate
from hami_dra.migration.record import ANNOTATION
from hami_dra.migration.revert import revert

CASES = Path(__file__).parents[2] / "cases"
CARDS = Cards(frozenset({24564, 81920}))
MARKS = ("hami.io/vgpu-", "hami.io/bind-")

amounts = st.sampled_from([0, 1, 2, 30, 100, "1k", "2.0", 4096, 2.0])
names = st.sampled_from([*Family().resources.model_dump().values(), "huawei.com/Ascend310P", "cpu"])
resources = st.fixed_dictionaries(
    {},
    optional={
        "limits": st.dictionaries(names, amounts, max_size=4),
        "requests": st.just({"cpu": 1}),
        "claims": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["mine", "gpu-c0"])})),
    },
)
variables = st.fixed_dictionaries(
    {"name": st.sampled_from(["A", "CUDA_TASK_PRIORITY", "LIBCUDA_LOG_LEVEL"])},
    optional={"value": st.sampled_from(["1", "2"])},
)
containers = st.fixed_dictionaries(
    {},
    optional={
        "resources": resources,
        "env": st.lists(variables, max_size=3),
        "image": st.just("i"),
    },
)
tolerations = st.sampled_from(
    [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "other", "operator": "Exists"}]
)
specs = st.fixed_dictionaries(
    {"initContainers": st.lists(containers, max_size=2), "containers": st.lists(containers)},
    optional={
        "schedulerName": st.sampled_from(["hami-scheduler", "mine"]),
        "runtimeClassName": st.just("mine"),
        "tolerations": st.lists(tolerations, max_size=2),
        "resourceClaims": st.just([{"name": "mine", "resourceClaimName": "x"}]),
    },
)
pods = st.fixed_dictionaries(
    {"spec": specs},
    optional={"metadata": st.dictionaries(st.sampled_from(["name", "labels"]), st.just("p"))},
)
policies = st.builds(
    Policy,
    families=st.sampled_from([("nvidia",), ("nvidia", "Ascend310P")]),
    kubernetes=st.sampled_from(["", "1.35"]),
    core_policy=st.sampled_from(["", "force"]),
    log_level=st.sampled_from(["", "1"]),
    runtime_class=st.sampled_from(["", "nvidia"]),
    target_scheduler=st.sampled_from(["", "other"]),
    add_toleration=st.booleans(),
    hide_cards=st.booleans(),
)


def named(pod: Json) -> Json:
    """Give the containers of a pod names of their own."""
    spec = pod["spec"]
    every = [*spec["initContainers"], *spec["containers"]]
    for index, container in enumerate(every):
        container["name"] = f"c{index}"
    return pod


def applied(pod: Json, patch: list[Json]) -> Json:
    changed: Json = jsonpatch.apply_patch(pod, patch)
    return changed


def meaning(pod: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return a pod without what says nothing: empty lists, empty objects and null."""
    if isinstance(pod, list):
        return [meaning(item) for item in pod]
    if not isinstance(pod, dict):
        return pod
    members = {key: meaning(value) for key, value in pod.items()}
    return {key: value for key, value in members.items() if value not in (None, [], {})}


@given(pods.map(deepcopy).map(named), policies)
def test_every_pod_comes_back_as_it_was(pod: Json, policy: Policy) -> None:
    """Whatever a migration under any policy did, the record alone undoes it."""
    try:
        converted = applied(pod, migrate(pod, policy, CARDS).patch)
    except RejectedPod:
        return

    before = deepcopy(converted)
    back = applied(converted, revert(converted))

    assert json.dumps(meaning(back), sort_keys=True) == json.dumps(meaning(pod), sort_keys=True)
    assert converted == before


def test_a_pod_that_two_passes_converted_comes_back_whole() -> None:
    """A container that was injected between two passes is undone with the others."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/priority": 0}
    first = {"spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}}
    policy = Policy(core_policy="force")
    once = applied(first, migrate(first, policy, CARDS).patch)
    once["spec"]["containers"].append({"name": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}})
    twice = applied(once, migrate(once, policy, CARDS).patch)

    back = applied(twice, revert(twice))

    assert back == {
        "spec": {
            "containers": [
                {"name": "a", "resources": {"limits": limits}},
                {"name": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}},
            ]
        }
    }


def test_a_zero_that_a_limit_range_held_becomes_the_amount_again() -> None:
    """What stands in the pod by force of a LimitRange is overwritten by what the record holds."""
    resources = {"limits": {"nvidia.com/gpu": 1}}
    pod = {"spec": {"containers": [{"name": "a", "resources": resources}]}}
    converted = applied(pod, migrate(pod, Policy(), CARDS).patch)
    converted["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "0"}

    assert applied(converted, revert(converted)) == pod


def golden_cases() -> list[Path]:
    return [case for case in sorted(CASES.iterdir()) if (case / "expected.yaml").exists()]


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_the_golden_cases_come_back(case: Path) -> None:
    """Each golden outcome reverts to its pod, but for what HAMi's scheduler had written."""
    yaml = YAML(typ="safe")
    pod = yaml.load(case / "pod.yaml")
    *_, converted = yaml.load_all(case / "expected.yaml")
    for section in ("annotations", "labels"):
        for mark in [key for key in pod["metadata"].get(section, {}) if key.startswith(MARKS)]:
            del pod["metadata"][section][mark]

    back = applied(converted, revert(converted))

    assert meaning(back) == meaning(pod)


@pytest.mark.parametrize("pod", [{}, {"metadata": {"annotations": {"a": "b"}}}, {"spec": {}}])
def test_a_pod_without_a_record_is_left_alone(pod: Json) -> None:
    """Nothing is undone where nothing says that something was done."""
    assert revert(pod) == []


ENTRY = {"name": "gpu-a", "resourceClaimTemplateName": "hami-1x1mi-0c-0"}
CLAIMED = {"containers": {"a": {"claims": ["gpu-a"], "limits": {"nvidia.com/gpu": 1}}}}


@pytest.mark.parametrize(
    ("record", "entries", "said"),
    [
        ("", [ENTRY], "found no JSON object"),
        ("[" * 9999, [ENTRY], "found no JSON object"),
        ("[]", [ENTRY], "found no JSON object"),
        (json.dumps(CLAIMED), [], "record of container a that does not fit"),
        (json.dumps(CLAIMED), [{**ENTRY, "resourceClaimTemplateName": "mine"}], "of container a"),
        ('{"containers": {"a": 1}}', [ENTRY], "of container a"),
        ('{"containers": {"z": {"limits": {"x": 1}}}}', [ENTRY], "found container z"),
        ('{"env": {"z": ["A"]}}', [ENTRY], "found container z"),
        ('{"env": {"a": "A"}}', [ENTRY], "does not fit the pod"),
        ('{"fields": {"nodeName": "n"}}', [ENTRY], "found the field nodeName: 'n'"),
        ('{"fields": {"schedulerName": 1}}', [ENTRY], "found the field schedulerName: 1"),
        ('{"fields": {"tolerations": [1]}}', [ENTRY], "found the field tolerations: [1]"),
        ('{"surprise": 1}', [ENTRY], "does not fit the pod"),
    ],
)
def test_a_record_that_the_pod_does_not_bear_out_is_refused(
    record: str, entries: list[Json], said: str
) -> None:
    """Half a revert would lose resources or hand out fields that no conversion touches."""
    pod = {
        "metadata": {"annotations": {ANNOTATION: record}},
        "spec": {"containers": [{"name": "a"}], "resourceClaims": entries},
    }

    with pytest.raises(RejectedPod) as caught:
        revert(pod)

    assert said in str(caught.value)
    assert ANNOTATION in str(caught.value)


def test_what_others_added_since_stays() -> None:
    """Entries, claims and variables that the record does not name are not touched."""
    pod = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    converted = applied(pod, migrate(pod, Policy(log_level="1"), CARDS).patch)
    container = converted["spec"]["containers"][0]
    container["env"].insert(0, {"name": "LIBCUDA_LOG_LEVEL", "value": "4"})
    container["resources"]["claims"].append({"name": "disk"})
    converted["spec"]["resourceClaims"].append({"name": "disk", "resourceClaimName": "disk"})

    back = applied(converted, revert(converted))["spec"]

    assert back["resourceClaims"] == [{"name": "disk", "resourceClaimName": "disk"}]
    assert back["containers"][0]["resources"]["claims"] == [{"name": "disk"}]
    assert back["containers"][0]["env"] == [{"name": "LIBCUDA_LOG_LEVEL", "value": "4"}]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
)


@given(anything, anything)
def test_any_json_gives_a_patch_or_a_rejection(record: object, value: object) -> None:
    """A record and a pod of any shape end in nothing worse than a rejection."""
    text = json.dumps(record)
    for spec in (value, {"containers": [value], "resourceClaims": value}, {"tolerations": value}):
        for written in (record, text, json.dumps(CLAIMED), '{"fields": {"tolerations": ["a"]}}'):
            pod = {"metadata": {"annotations": {ANNOTATION: written}}, "spec": spec}
            try:
                applied(pod, revert(pod))
            except RejectedPod:
                continue
