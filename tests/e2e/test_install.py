"""Installing and removing, on a real control plane of its own with simulated nodes."""

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hami_dra.kube.errors import ApiError
from hami_dra.kube.ledgers import Ledgers
from hami_dra.lab import webhook
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.nodes import add_node, remove_node
from hami_dra.lab.scene import start_kubelet
from hami_dra.lab.wait import PATIENCE_S, until
from hami_dra.migration.registration import GUARD_NAME, NAME, SYSTEM_NAMESPACE
from hami_dra.quota.ledger import Ledger
from tests.e2e.conftest import LOGS
from tests.e2e.installation import CERT_MANAGER, HOOKS, Site, replica
from tests.e2e.world import PATIENCE, pod

pytestmark = pytest.mark.cluster

ROOT: Final = Path(__file__).parents[2]
OVERLAYS: Final = ROOT / "manifests" / "overlays"
COMMAND: Final = Path(sys.executable).with_name("hami-dra")
GUARDS: Final = "validatingadmissionpolicies"


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, kube_version: str | None) -> Iterator[Cluster]:
    """A control plane and the simulated kubelet; the kinds of cert-manager are known."""
    with Cluster.start(version=kube_version) as running:
        start_kubelet(running)
        running.kubectl("apply", "-f", "-", stdin=json.dumps(CERT_MANAGER))
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", PATIENCE)
        yield running
        if request.session.testsfailed:
            running.collect_logs(LOGS)


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    """The cluster with two nodes, as empty before as after."""
    with Api(cluster.kubeconfig) as api:
        shown = Site(cluster, api)
        before = shown.everything()
        for name in ("one", "two"):
            add_node(api, name, {"l4-24g": 1})
        yield shown
        assert shown.run("uninstall", "--yes").exit_code == 0
        for name in ("one", "two"):
            remove_node(api, name)
        until(
            lambda: not (shown.everything() - before),
            what="nothing is left",
        )


def test_every_overlay_is_accepted(site: Site) -> None:
    """By a dry run of the server and for good; the pods pass the namespace's pod security."""
    # What is in a namespace can be tried only when that is there.
    agents = ROOT / "manifests" / "components" / "node-agent" / "namespace.yaml"
    for where, path in (("-k", ROOT / "manifests" / "base"), ("-f", agents)):
        site.cluster.kubectl("apply", where, str(path))

    for overlay in sorted(OVERLAYS.iterdir()):
        site.cluster.kubectl("apply", "-k", str(overlay), "--dry-run=server")
        site.cluster.kubectl("apply", "-k", str(overlay))

    nodes = until(site.nodes_of_both_replicas, what="both replicas run")
    assert nodes == {"one", "two"}
    with pytest.raises(ApiError, match="violates PodSecurity"):
        site.api.create("pods", pod("plain", {"cpu": 1}), namespace=SYSTEM_NAMESPACE)


def test_pods_are_converted_as_soon_as_the_command_has_ended(site: Site) -> None:
    """The command waits for a bundle that only a webhook with the shipped rights can write."""
    with subprocess.Popen(
        [COMMAND, *site.arguments("install")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        until(
            lambda: site.api.find(HOOKS, NAME),
            what="the webhook is registered",
        )
        assert site.nodes_of_both_replicas(), "the workload came first"
        assert site.api.find(GUARDS, GUARD_NAME) is None, "the guard comes last"
        with replica(site) as url:
            said, noted = command.communicate(timeout=PATIENCE_S)
            assert command.returncode == 0, noted
            assert "deployment.apps/hami-dra-webhook created" in said
            agent, monitor = said.splitlines()[-7:-5]
            assert "daemonset.apps/hami-dra-node created" in agent
            assert "daemonset.apps/hami-dra-monitor created" in monitor
            assert "nobody has written the caBundle of pods.hami-dra.io yet" in noted
            site.point_to(url)
            webhook.await_registered(site.api, "default")
            assert site.api.find(GUARDS, GUARD_NAME)
            site.api.delete_all("resourceclaimtemplates", "default")


@pytest.mark.parametrize("again", ["command", "kubectl"])
def test_an_upgrade_leaves_the_bundle_and_replaces_pods_only_for_another_policy(
    site: Site, again: str, tmp_path: Path
) -> None:
    site.install()
    with replica(site):
        bundle = until(site.bundle, what="the bundle is written")
    revision = site.deployment()["metadata"]

    if again == "kubectl":
        apply = ("apply", "--server-side", "--force-conflicts", "-k")
        site.cluster.kubectl(*apply, str(OVERLAYS / "self-signed"))
    else:
        said = [line for line in site.install().splitlines() if "/" in line]
        assert [line for line in said if not line.endswith(" unchanged")] == []

    assert site.bundle() == bundle
    found = site.deployment()["metadata"]
    assert found["generation"] == revision["generation"]

    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "apiVersion: hami-dra.io/v1alpha1\nkind: Policy\nfamilies: [nvidia, hygon-dcu]\n"
    )
    site.install("--policy", str(policy), "--force-conflicts")

    assert site.bundle() == bundle
    [hook] = site.api.get(HOOKS, NAME)["webhooks"]
    assert "hygon.com/dcunum" in hook["matchConditions"][0]["expression"]
    found = site.deployment()["metadata"]
    assert found["generation"] > revision["generation"]


def test_both_replicas_run_where_only_one_node_may_be_used(site: Site) -> None:
    # A control plane node, or a cordoned one, which a controller taints likewise.
    site.cluster.kubectl("taint", "node", "two", "role=other:NoSchedule")

    site.install()

    nodes = until(site.nodes_of_both_replicas, what="both replicas run")
    assert nodes == {"one"}


def test_our_calls_have_a_priority_of_their_own(site: Site) -> None:
    site.install()
    path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/hami-dra"
    schema = site.api.run(lambda session: session.get(path))
    token = site.token()

    def heeded() -> bool:
        return site.flow_schema_of_a_call(token) == str(schema["metadata"]["uid"])

    until(heeded, what="the API server heeds the FlowSchema")


def test_the_rights_beside_cert_manager_are_enough(site: Site) -> None:
    site.install("--certificates", "cert-manager")

    running = webhook.start(site.cluster, name="files")

    running.process.stop()


def test_what_another_choice_installed_goes(site: Site) -> None:
    site.install("--certificates", "cert-manager")

    said = site.install()

    assert "certificate.cert-manager.io/hami-dra-webhook deleted" in said
    assert not [each for each in site.everything() if each.startswith("certificates/")]
    [configuration] = site.api.list(HOOKS)
    assert "annotations" not in configuration["metadata"]


def test_what_does_not_get_ready_is_explained_and_not_registered(site: Site) -> None:
    for name in ("one", "two"):
        site.cluster.kubectl("cordon", name)

    done = site.run("install", "--timeout", "10")

    assert done.exit_code == 3
    assert "0 of 2 replicas are ready" in done.stderr
    assert "0/2 nodes are available" in done.stderr
    assert "unschedulable" in done.stderr
    assert site.api.find(HOOKS, NAME) is None
    assert site.api.find(GUARDS, GUARD_NAME) is None
    legacy = site.api.create(
        "pods", pod("legacy", {"gpu": 1}), namespace="default", query={"dryRun": "All"}
    )
    assert legacy["metadata"]["name"] == "legacy"


def test_agents_that_cannot_be_created_are_explained(site: Site) -> None:
    site.install()
    with replica(site):
        until(site.bundle, what="the bundle is written")

        done = site.run("install", "--runtime-class", "nvidia", "--timeout", "10")

    assert done.exit_code == 3
    assert "daemonset.apps/hami-dra-node got no further for 10 s" in done.stderr
    assert 'RuntimeClass "nvidia" not found' in done.stderr


def test_without_cert_manager_nothing_is_changed(site: Site) -> None:
    site.cluster.kubectl("delete", "crd", "issuers.cert-manager.io")
    before = site.everything()
    try:
        done = site.run("install", "--certificates", "cert-manager")
    finally:
        site.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(CERT_MANAGER))

    assert done.exit_code == 1
    assert "serves no Issuer of cert-manager.io/v1" in done.stderr
    assert {each for each in site.everything() - before if "hami" in each} == set()


def test_a_port_of_the_nodes_that_is_taken_is_told_before_pods_are_concerned(site: Site) -> None:
    taken = ("create", "service", "nodeport", "taken", "--tcp=80", "--node-port=31995")
    site.cluster.kubectl(*taken, "-n", "default")
    try:
        done = site.run("install", "--no-wait")

        assert done.exit_code == 1
        assert "31995" in done.stderr
        assert "already allocated" in done.stderr
        assert site.api.find(HOOKS, NAME) is None
        assert "daemonset.apps/hami-dra-node created" in site.install("--no-monitor")
    finally:
        site.cluster.kubectl("delete", "service", "taken", "-n", "default")


def test_what_somebody_else_set_is_taken_only_when_told(site: Site) -> None:
    site.install()
    scaled = {"spec": {"replicas": 3}}
    site.cluster.kubectl(
        *("-n", SYSTEM_NAMESPACE, "patch", "deployment", NAME, "--field-manager=somebody"),
        *("--type=merge", "-p", json.dumps(scaled)),
    )

    done = site.run("install", "--no-wait")
    assert done.exit_code == 1
    assert 'conflict with "somebody"' in done.stderr
    assert ".spec.replicas" in done.stderr
    assert "--force-conflicts" in done.stderr

    assert "deployment.apps/hami-dra-webhook configured" in site.install("--force-conflicts")


@pytest.mark.parametrize("command", [("install", "--no-wait"), ("uninstall", "--yes")])
def test_another_namespace_than_that_of_the_installation_changes_nothing(
    site: Site, command: tuple[str, ...]
) -> None:
    """Half of it would be in the one, and half in the other."""
    site.install("--namespace", "gpu")
    before = site.everything()

    done = site.run(*command)

    assert done.exit_code == 1
    assert "hami-dra is in the namespace gpu" in done.stderr
    assert "--namespace gpu" in done.stderr
    assert site.everything() >= before
    assert site.run("uninstall", "--yes", "--namespace", "gpu").exit_code == 0


def test_a_namespace_of_somebody_else_stays_as_it_is(site: Site) -> None:
    labels = {"team": "gpu"}
    site.api.create("namespaces", {"metadata": {"name": "shared", "labels": labels}})
    try:
        said = site.install("--namespace", "shared")
        assert "namespace/shared left alone" in said
        secret = {
            "metadata": {"name": f"{NAME}-ca"},
            "data": {"x": base64.b64encode(b"x").decode()},
        }
        path = "/api/v1/namespaces/shared/secrets"
        site.api.run(lambda session: session.create(path, secret))
        assert site.api.run(
            lambda session: Ledgers(session, "shared", overdue_s=90).write(
                "default", None, Ledger()
            )
        )

        done = site.run("uninstall", "--yes", "--namespace", "shared")

        assert "namespace/shared left alone" in done.stdout
        kept = site.api.get("namespaces", "shared")["metadata"]["labels"]
        assert kept == {**labels, "kubernetes.io/metadata.name": "shared"}
        until(
            lambda: not [each for each in site.everything() if "hami-dra" in each],
            what="nothing of ours is left",
        )
    finally:
        site.api.delete("namespaces", "shared")
