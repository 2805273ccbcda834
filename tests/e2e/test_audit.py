"""What `audit` and `explain` say of a real cluster with a webhook in it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.lab import pki
from hami_dra.lab.failure import KubectlError
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.e2e.quotas import set_quota
from tests.e2e.world import PATIENCE, World, limit_range, pod

pytestmark = pytest.mark.cluster

MEMORY = "nvidia.com/gpumem"
RAY = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rayclusters.ray.io"},
    "spec": {
        "group": "ray.io",
        "scope": "Namespaced",
        "names": {"kind": "RayCluster", "plural": "rayclusters"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


def run(world: World, *arguments: str, kubeconfig: Path | None = None) -> Result:
    chosen = str(kubeconfig or world.scene.cluster.kubeconfig)
    return CliRunner().invoke(app, [*arguments, "--kubeconfig", chosen])


def deployment(name: str, limits: Json, **annotations: str) -> Json:
    """Write a Deployment of two pods in legacy words."""
    written = pod(name, limits, annotations={f"hami.io/{k}": v for k, v in annotations.items()})
    labels = {"app": name}
    metadata = {"labels": labels, "annotations": written["metadata"]["annotations"]}
    template = {"metadata": metadata, "spec": written["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }


@pytest.fixture
def mixed(world: World) -> Iterator[World]:
    """Have one of everything in a namespace, and a kind that cannot carry claims."""
    world.add_node("gpu", l4_24g=1)
    world.await_card_sizes(23034)
    world.apply(
        pod("notebook", {"gpu": 1, "gpumem": 4000}),
        deployment("chat", {"gpu": 1, "gpumem": 2000, "gpucores": 10}),
        deployment("bytes", {"gpu": 1, "gpumem": "16Gi"}),
        deployment("packed", {"gpu": 1, "gpumem": 1000}, **{"node-scheduler-policy": "binpack"}),
        limit_range(max={MEMORY: "20000"}),
    )
    set_quota(world, {f"limits.{MEMORY}": 5000})
    try:
        world.apply(RAY)
        world.kubectl("wait", "--for=condition=Established", "crd/rayclusters.ray.io", PATIENCE)
        worker = {"template": {"spec": pod("worker", {"gpu": 1})["spec"]}}
        cluster = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": "tuning"},
            "spec": {"workerGroupSpecs": [worker]},
        }

        def stored() -> bool:
            world.apply(cluster)
            return True

        until(stored, what="the new kind is served", tolerate=(KubectlError,))
        yield world
    finally:
        world.kubectl("delete", "crd/rayclusters.ray.io", "--ignore-not-found")


def test_a_mixed_namespace_is_told_apart(mixed: World) -> None:
    done = run(mixed, "audit", "-n", mixed.namespace, "-o", "json")

    found = json.loads(done.stdout)
    assert done.exit_code == 3, done.stderr
    assert {each["object"]: each["outcome"] for each in found["workloads"]} == {
        "Deployment/bytes": "rejected",
        "Deployment/chat": "converts",
        "Deployment/packed": "person",
        "Pod/notebook": "converted",
        "RayCluster/tuning": "webhook",
    }
    assert found["notices"] == {"HintLost": 1}
    assert found["unread"] == []
    # chat twice, packed twice and the notebook; nobody can say what `16Gi` asks for
    [whole] = found["namespaces"]
    assert whole["before"] == whole["after"] == {"cards": 5, "memoryMiB": 10000, "cores": 20}
    bounds = {each["title"]: each for each in found["bounds"]}
    assert set(bounds) == {"LimitRange/bounds", "ResourceQuota/gpus"}
    # the API server makes a maximum the default too
    assert f"max {MEMORY}: 20k" in bounds["LimitRange/bounds"]["says"]
    assert "by default" in bounds["LimitRange/bounds"]["becomes"]
    assert "enforced by the webhook" in bounds["ResourceQuota/gpus"]["becomes"]
    assert "all workloads at once do not fit" in bounds["ResourceQuota/gpus"]["becomes"]


def test_the_whole_cluster_has_the_namespace_in_it(mixed: World, tmp_path: Path) -> None:
    report = tmp_path / "report.html"

    done = run(mixed, "audit", "-A", "--html", str(report))

    assert done.exit_code == 3, done.stderr
    assert mixed.namespace in done.stdout
    assert "of 5 workloads" not in done.stdout
    assert f"Kubernetes {mixed.scene.api.run(lambda s: s.get('/version'))['gitVersion']}" in (
        report.read_text()
    )


def test_an_account_that_may_see_little_is_told_what_it_missed(
    mixed: World, tmp_path: Path
) -> None:
    mixed.kubectl("create", "serviceaccount", "viewer")
    mixed.kubectl("create", "role", "viewer", "--verb=list", "--resource=deployments.apps")
    account = f"{mixed.namespace}:viewer"
    mixed.kubectl("create", "rolebinding", "viewer", "--role=viewer", f"--serviceaccount={account}")
    token = mixed.kubectl("create", "token", "viewer").stdout.strip()
    cluster = mixed.scene.cluster
    viewer = tmp_path / "viewer.kubeconfig"
    pki.write_kubeconfig(viewer, pki.kubeconfig(cluster.server, cluster.ca_pem, token))

    def allowed() -> Result | None:
        """The API server learns of the binding a moment later."""
        done = run(mixed, "audit", "-n", mixed.namespace, kubeconfig=viewer)
        return done if "Deployment/chat" in done.stdout else None

    done = until(allowed, what="the account may list Deployments")

    assert done.exit_code == 1
    assert "could not read pods: 403 Forbidden" in done.stderr
    assert "could not read resourcequotas: 403 Forbidden" in done.stderr
    assert "could not read deployments" not in done.stderr
    assert "Pod/notebook" not in done.stdout


def test_a_live_pod_is_explained_from_its_record(world: World) -> None:
    """The webhook converted it, and the scheduler chose its node; both are seen through."""
    world.add_node("gpu", l4_24g=1)
    world.apply(pod("notebook", {"gpu": 1, "gpumem": 4000}))
    world.await_scheduled("notebook")

    done = run(world, "explain", "pod/notebook", "-n", world.namespace, "-o", "json")
    missing = run(world, "explain", "pod/nobody", "-n", world.namespace)

    [found] = json.loads(done.stdout)
    assert (found["workload"], found["container"]) == ("Pod/notebook", "main")
    assert found["asked"] == ["gpu=1", "gpumem=4000"]
    assert found["becomes"] == ["claim gpu-main", "1 card: cores 0, memory 4000Mi"]
    [entry] = world.pod("notebook")["spec"]["resourceClaims"]
    assert found["template"] == entry["resourceClaimTemplateName"]
    assert (done.exit_code, missing.exit_code) == (0, 1)
    assert "404" in missing.stderr
