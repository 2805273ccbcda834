"""A migration made of the excerpt of a pod is the migration of the pod."""

from copy import deepcopy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hami_dra.migration import Cards, Json, NamespaceLimits, Policy, RejectedPod, migrate
from hami_dra.migration.excerpt import excerpt
from hami_dra.migration.pod import NO_LIMITS, migrate_part
from tests.pods import ANNOTATIONS, CARDS, anything, pods

POLICIES = (
    Policy(kubernetes="1.37"),
    Policy(
        kubernetes="1.35",
        core_policy="force",
        log_level="1",
        hide_cards=True,
        privileged="warn",
        add_toleration=True,
        runtime_class="nvidia",
        target_scheduler="default-scheduler",
    ),
    Policy.model_validate({"families": ["nvidia", "hygon-dcu", "Ascend910B3"]}),
)
LIMITS = (NO_LIMITS, NamespaceLimits(maximum=frozenset({"nvidia.com/gpu"})))

variables = st.lists(
    anything
    | st.fixed_dictionaries(
        {
            "name": st.sampled_from(
                [
                    "PATH",
                    "CUDA_DISABLE_CONTROL",
                    "CUDA_TASK_PRIORITY",
                    "LIBCUDA_LOG_LEVEL",
                    "GPU_CORE_UTILIZATION_POLICY",
                    "NVIDIA_VISIBLE_DEVICES",
                ]
            )
        },
        optional={"value": st.sampled_from(["true", "0", "1", "none"]) | anything},
    ),
    max_size=4,
)
marks = st.dictionaries(
    st.sampled_from(
        [
            *ANNOTATIONS,
            "hami.io/webhook",
            "hami.io/vgpu-node",
            "hami.io/bind-phase",
            "hami.io/gpu-scheduler-policy",
            "hami.io/node-scheduler-policy",
            "hami-dra.io/migration",
            "kubernetes.io/config.mirror",
            "kubectl.kubernetes.io/restartedAt",
            "other",
        ]
    ),
    st.sampled_from(["", "ignore", "mutex", "a100", "binpack", "{}"]) | anything,
    max_size=4,
)
of_container = st.fixed_dictionaries(
    {},
    optional={
        "env": variables | anything,
        "securityContext": st.sampled_from([{"privileged": True}, {"runAsUser": 1}]) | anything,
        "restartPolicy": st.sampled_from(["Always", None]),
        "image": st.text(max_size=3),
    },
)
of_spec = st.fixed_dictionaries(
    {},
    optional={
        "nodeName": st.sampled_from(["", "node"]),
        "schedulerName": st.sampled_from(["hami-scheduler", "own"]),
        "runtimeClassName": st.sampled_from(["", "own"]),
        "schedulingGroup": st.just({"podGroupName": "g"}),
        "tolerations": st.just([{"key": "nvidia.com/gpu", "operator": "Exists"}]) | anything,
        "resourceClaims": st.just([{"name": "gpu-c0"}]) | anything,
    },
)


@st.composite
def strange_pods(draw: st.DrawFn) -> Json:
    """Draw pods that say something, or nonsense, wherever a migration looks."""
    pod = draw(pods())
    if draw(st.booleans()):
        pod["metadata"]["annotations"] = draw(marks | anything)
    if draw(st.booleans()):
        pod["metadata"]["labels"] = draw(marks | anything)
    pod["spec"].update(draw(of_spec))
    for kind in ("initContainers", "containers"):
        for container in pod["spec"][kind]:
            container.update(draw(of_container))
            if draw(st.integers(0, 9)) == 0:
                container["resources"]["claims"] = draw(anything)
    for key in draw(st.sets(st.sampled_from(["metadata", "spec", "kind"]), max_size=1)):
        del pod[key]
    return pod


def outcome(make: Any, pod: Json, *arguments: Any) -> object:  # noqa: ANN401 - any signature
    """Return all that can be seen of a migration: what the pod becomes, or why it is refused."""
    try:
        migration = make(pod, *arguments)
    except RejectedPod as rejected:
        return str(rejected)
    changed = jsonpatch.apply_patch(pod, deepcopy(migration.patch))
    return changed, migration.templates, migration.notices


@settings(max_examples=150)
@given(strange_pods(), st.sampled_from(POLICIES), st.sampled_from(LIMITS))
def test_nothing_outside_the_excerpt_decides(
    pod: Json, policy: Policy, limits: NamespaceLimits
) -> None:
    whole = outcome(migrate_part, pod, policy, CARDS, limits)

    assert outcome(lambda p: migrate(p, policy, CARDS, limits=limits), pod) == whole
    # Asked again, it is remembered.
    assert outcome(lambda p: migrate(p, policy, CARDS, limits=limits), pod) == whole


@given(strange_pods())
def test_an_excerpt_is_all_of_its_excerpt(pod: Json) -> None:
    part = excerpt(pod, POLICIES[0])

    assert excerpt(part, POLICIES[0]) == part


def gpu_pod(amount: object, **metadata: object) -> Json:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": amount}
    container = {"name": "c", "image": "a", "resources": {"limits": limits}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def test_pods_that_differ_in_other_fields_share_one_migration() -> None:
    one, other = gpu_pod("8k", name="one"), gpu_pod("8k", name="other", labels={"app": "x"})
    other["spec"]["containers"][0] |= {"image": "b", "env": [{"name": "PATH", "value": "/"}]}
    del other["metadata"]["labels"], other["spec"]["containers"][0]["env"]

    assert migrate(one, POLICIES[0], CARDS) is migrate(other, POLICIES[0], CARDS)


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (1, "1"), (0, False)])
def test_amounts_that_python_finds_equal_are_told_apart(one: object, other: object) -> None:
    fresh = [outcome(migrate_part, gpu_pod(a), POLICIES[0], CARDS, NO_LIMITS) for a in (one, other)]

    assert [outcome(migrate, gpu_pod(a), POLICIES[0], CARDS) for a in (one, other)] == fresh


def test_another_policy_and_other_cards_are_asked_anew() -> None:
    pod = gpu_pod(1000)
    pod["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpumem-percentage": 50}
    old, new = POLICIES[0], POLICIES[0].model_copy(update={"kubernetes": "1.35"})

    names = {
        migrate(pod, policy, Cards(frozenset({size}))).templates[0].name
        for policy in (old, new)
        for size in (1000, 2000)
    }
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 2
    several = {str(migrate(pod, policy, CARDS).templates[0].spec) for policy in (old, new)}

    assert (len(names), len(several)) == (2, 2)
