"""Each object of a cluster is judged as the webhook would judge its pods, and counted once."""

import jsonpatch
import pytest
from hypothesis import given

from hami_dra.cli.auditing.findings import Finding, Outcome, Total
from hami_dra.cli.auditing.judging import Judge, controller_of
from hami_dra.migration import CardKind, Cards, Json, NamespaceLimits, Policy, migrate
from hami_dra.migration.names import DRIVER
from tests.pods import migrated, pods

POLICY = Policy(kubernetes="1.37")
A100, L4 = (
    CardKind(DRIVER, model, mib) for model, mib in (("NVIDIA A100", 81920), ("NVIDIA L4", 23034))
)
CARDS = Cards(frozenset(), frozenset({A100, L4}))
JUDGE = Judge(POLICY, CARDS)
SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 8000, "nvidia.com/gpucores": 30}


def template(limits: Json = SHARE, **spec: object) -> Json:
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec}}


def item(api_version: str, kind: str, **fields: object) -> Json:
    metadata = {"name": "x", "namespace": "team"}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def deployment(limits: Json = SHARE, **spec: object) -> Json:
    return item("apps/v1", "Deployment", spec={"template": template(limits), **spec})


def pod(limits: Json = SHARE, **fields: object) -> Json:
    return item("v1", "Pod", **{**template(limits), **fields})


def the(found: Json, judge: Judge = JUDGE) -> Finding:
    [finding] = judge.findings(found)
    return finding


def totals(finding: Finding) -> tuple[Total, Total]:
    return Total.of(finding.before, POLICY), Total.of(finding.after, POLICY)


def test_a_deployment_that_converts_takes_what_it_asked_for_times_its_replicas() -> None:
    found = the(deployment(replicas=3))

    assert (found.outcome, found.copies) == (Outcome.CONVERTS, 3)
    assert found.asked == ("gpu=1 gpumem=8000 gpucores=30",)
    assert totals(found) == (Total(3, 24000, 90), Total(3, 24000, 90))
    assert found.templates
    assert not found.told


def test_several_cards_count_with_the_memory_of_each() -> None:
    found = the(deployment({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 5000}, replicas=2))

    assert totals(found)[1] == totals(found)[0] == Total(4, 20000, 0)


def test_whole_cards_and_percentages_count_as_the_largest_card() -> None:
    whole = the(deployment({"nvidia.com/gpu": 1}))
    half = the(deployment({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}))

    assert totals(whole) == (Total(1, 81920, 100),) * 2
    assert totals(half) == (Total(1, 40960, 0),) * 2
    assert totals(the(deployment({"nvidia.com/gpu": 1}), Judge(POLICY)))[1].memory_mib is None


def test_a_pod_that_is_refused_takes_nothing_and_says_why() -> None:
    found = the(deployment({"nvidia.com/gpu": 1, "nvidia.com/gpumem": "16Gi"}))

    assert found.outcome is Outcome.REJECTED
    assert "write nvidia.com/gpumem: 16384" in found.reason
    assert totals(found)[1] == Total()


def test_a_privileged_pod_is_rejected_and_still_counts_as_asked() -> None:
    spec = template()
    spec["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    found = the(item("apps/v1", "Deployment", spec={"template": spec}))

    assert found.outcome is Outcome.REJECTED
    assert totals(found) == (Total(1, 8000, 30), Total())


def test_notices_need_a_person() -> None:
    above = the(
        deployment({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1, "nvidia.com/gpucores": 120})
    )
    outside = deployment()
    outside["metadata"]["annotations"] = {"nvidia.com/use-gputype": "A100"}

    assert above.outcome is Outcome.PERSON
    assert [notice.code for notice in above.notices] == ["CoresClamped"]
    assert the(outside).outcome is Outcome.PERSON
    assert "move it to spec.template.metadata" in the(outside).told[0]


def test_the_limits_of_the_namespace_count_as_for_the_webhook() -> None:
    least = NamespaceLimits(minimum=frozenset({"nvidia.com/gpumem"}))

    found = the(deployment(), Judge(POLICY, CARDS, {"team": least}))

    assert found.outcome is Outcome.REJECTED
    assert the(deployment(), Judge(POLICY, CARDS, {"other": least})).outcome is Outcome.CONVERTS


@pytest.mark.parametrize("judge", [Judge(POLICY, CARDS, {}, {"team"}), JUDGE])
def test_what_is_left_alone_needs_a_person(judge: Judge) -> None:
    spec = template()
    if not judge.left_alone:
        spec["metadata"] = {"labels": {"hami.io/webhook": "ignore"}}

    found = the(item("apps/v1", "Deployment", spec={"template": spec}), judge)

    assert found.outcome is Outcome.PERSON
    assert "stay as they are" in found.reason
    assert totals(found) == (Total(1, 8000, 30), Total())
    assert not found.templates


def test_a_converted_pod_counts_as_it_was_and_as_it_is() -> None:
    before = pod()
    migration = migrate(before, POLICY, CARDS)

    found = the(jsonpatch.apply_patch(before, migration.patch))

    assert found.outcome is Outcome.CONVERTED
    assert found.asked == ("gpu=1 gpumem=8000 gpucores=30",)
    assert totals(found) == (Total(1, 8000, 30), Total(1, 8000, 30))


def test_a_running_pod_is_judged_as_its_author_wrote_it() -> None:
    """The scheduler named the node, and HAMi's one left its marks."""
    running = pod()
    running["spec"]["nodeName"] = "node-1"
    running["metadata"]["annotations"] = {"hami.io/vgpu-node": "node-1"}

    assert the(running).outcome is Outcome.CONVERTS


def test_init_containers_give_way_as_for_the_scheduler() -> None:
    asked = template()
    early = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 12000}
    asked["spec"]["initContainers"] = [{"name": "setup", "resources": {"limits": early}}]

    found = the(item("apps/v1", "Deployment", spec={"template": asked}))

    assert found.asked[0].startswith("setup: gpu=1 ")
    assert totals(found) == (Total(1, 12000, 30), Total(2, 20000, 30))
    assert [notice.code for notice in found.notices] == ["InitReserved"]


JOB = {"spec": {"parallelism": 4, "template": template()}}
COPIES = {
    "none said": (deployment(), 1),
    "no replicas": (deployment(replicas=0), 0),
    "PodTemplate": (item("v1", "PodTemplate", template=template()), 0),
    "Job": (item("batch/v1", "Job", **JOB), 4),
    "Job with fewer completions": (
        item("batch/v1", "Job", spec={**JOB["spec"], "completions": 3}),
        3,
    ),
    "Job with more completions": (
        item("batch/v1", "Job", spec={**JOB["spec"], "completions": 9}),
        4,
    ),
    "CronJob": (item("batch/v1", "CronJob", spec={"jobTemplate": JOB}), 4),
    "DaemonSet": (
        item(
            "apps/v1",
            "DaemonSet",
            spec={"template": template()},
            status={"desiredNumberScheduled": 7},
        ),
        7,
    ),
    "JobSet": (
        item(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            spec={"replicatedJobs": [{"replicas": 2, "template": JOB}]},
        ),
        8,
    ),
    "JobSet with fewer completions": (
        item(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            spec={
                "replicatedJobs": [
                    {"replicas": 5, "template": {"spec": {**JOB["spec"], "completions": 3}}}
                ]
            },
        ),
        15,
    ),
    "PyTorchJob": (
        item(
            "kubeflow.org/v1",
            "PyTorchJob",
            spec={"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": template()}}},
        ),
        3,
    ),
    "LeaderWorkerSet": (
        item(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            spec={
                "replicas": 2,
                "leaderWorkerTemplate": {"size": 4, "workerTemplate": template()},
            },
        ),
        8,
    ),
}


@pytest.mark.parametrize("name", COPIES)
def test_each_kind_has_its_copies(name: str) -> None:
    found, expected = COPIES[name]

    assert the(found).copies == expected


def test_a_leader_with_a_template_of_its_own_is_no_worker() -> None:
    group = {"size": 4, "leaderTemplate": template(), "workerTemplate": template()}
    spec = {"replicas": 2, "leaderWorkerTemplate": group}
    found = JUDGE.findings(item("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec=spec))

    assert {each.title: each.copies for each in found} == {
        "LeaderWorkerSet/x (spec.leaderWorkerTemplate.leaderTemplate)": 2,
        "LeaderWorkerSet/x (spec.leaderWorkerTemplate.workerTemplate)": 6,
    }


@pytest.mark.parametrize(
    "found",
    [
        pod(status={"phase": "Succeeded"}),
        item(
            "batch/v1", "Job", **JOB, status={"conditions": [{"type": "Failed", "status": "True"}]}
        ),
        deployment({"cpu": 1}),
        pod({"cpu": 1}, status={"allocatable": SHARE}),
        item("v1", "Pod", spec={"nodeSelector": {"nvidia.com/gpu": "true"}, "containers": []}),
        item("v1", "LimitRange", spec={"limits": [{"max": {"nvidia.com/gpu": 1}}]}),
        item("ray.io/v1", "RayCluster", spec={"workerGroupSpecs": []}),
    ],
)
def test_what_has_ended_or_asks_for_no_card_is_not_listed(found: Json) -> None:
    assert not list(JUDGE.findings(found))


VOLCANO = item("batch.volcano.sh/v1alpha1", "Job", spec={"tasks": [{"template": template()}]})
JOBSET = item("jobset.x-k8s.io/v1alpha2", "JobSet", spec={"replicatedJobs": [{"template": JOB}]})
PYTORCH = item(
    "kubeflow.org/v1",
    "PyTorchJob",
    spec={"pytorchReplicaSpecs": {"Worker": {"template": template()}}},
)
ROLLOUT = item("argoproj.io/v1alpha1", "Rollout", spec={"template": template()})


def condition(type_: str, status: str = "True") -> Json:
    return {
        "conditions": [{"type": "Created", "status": "True"}, {"type": type_, "status": status}]
    }


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (VOLCANO, {"state": {"phase": "Completed"}}),
        (VOLCANO, {"state": {"phase": "Terminated"}}),
        (JOBSET, condition("Completed")),
        (PYTORCH, condition("Succeeded")),
        (PYTORCH, condition("Failed")),
    ],
)
def test_jobs_of_operators_end_too(found: Json, status: Json) -> None:
    """They stay for ever unless somebody asked for less."""
    assert not list(JUDGE.findings({**found, "status": status}))


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (VOLCANO, {"state": {"phase": "Running"}, "conditions": [{"status": "Completed"}]}),
        (VOLCANO, {"state": {"phase": "Aborted"}}),
        (VOLCANO, {}),
        (JOBSET, condition("Completed", "False")),
        (PYTORCH, condition("Running")),
        (ROLLOUT, condition("Completed")),
        (ROLLOUT, "unknown"),
    ],
)
def test_what_goes_on_is_listed(found: Json, status: object) -> None:
    """A Rollout is complete when its update is, and an aborted job can be resumed."""
    assert the({**found, "status": status}).outcome is Outcome.CONVERTS


def test_kinds_that_cannot_carry_claims_are_left_to_the_webhook() -> None:
    ray = item("ray.io/v1", "RayCluster", spec={"workerGroupSpecs": [{"template": template()}]})
    unknown = item("example.org/v1", "Thing", spec={"resources": SHARE})

    assert the(ray).outcome is Outcome.WEBHOOK
    assert "KubeRay reads" in the(ray).reason
    assert the(unknown).outcome is Outcome.PERSON
    assert "names nvidia.com/gpu" in the(unknown).reason


def test_an_object_knows_the_kind_that_made_it() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "u", "controller": True},
    ]

    assert controller_of({"metadata": {"ownerReferences": owners}}) == ("apps", "ReplicaSet", "u")
    assert controller_of({"metadata": {}}) == ("", "", "")


@given(pods())
def test_the_verdict_is_the_migration_s(found: Json) -> None:
    """Whatever a pod looks like: it converts here if it converts there, and nobody is missing."""
    judged = list(
        Judge(Policy(kubernetes="1.37"), Cards(frozenset({24564, 81920}))).findings(found)
    )
    outcome = migrated(found)

    if outcome is None:
        assert [each.outcome for each in judged] == [Outcome.REJECTED]
    elif outcome[0].patch:
        assert [each.outcome for each in judged] in ([Outcome.CONVERTS], [Outcome.PERSON])
        assert [each.templates for each in judged] == [tuple(t.name for t in outcome[0].templates)]
    else:
        assert Outcome.CONVERTS not in {each.outcome for each in judged}
