"""With the identity that is shipped, an agent's token writes the slices of its own node alone."""

import json
from pathlib import Path

import pytest

from hami_dra.kube.slices import dropped_fields, is_same
from hami_dra.lab import pki
from hami_dra.lab.scene import Scene
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from tests import versions
from tests.node import account

pytestmark = pytest.mark.cluster

OURS, THEIRS = "agent-node-1", "agent-node-2"
POOL_OF_THEIRS = {"name": THEIRS, "generation": 9, "resourceSliceCount": 1}


@pytest.fixture(scope="module")
def agent(shared_scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the kubeconfig of an agent's pod on a node, with the component installed."""
    cluster = shared_scene.cluster
    account.install(cluster)
    token = account.token(cluster, shared_scene.api, OURS)
    path = tmp_path_factory.mktemp("agent") / "kubeconfig"
    content = pki.kubeconfig(cluster.server, cluster.ca_pem, token)
    pki.write_kubeconfig(path, content)
    # The API server takes a moment to heed a new policy; until then a refusal would prove nothing.
    until(
        lambda: (
            "may write slices of that node alone"
            in write(shared_scene, path, "create", "--dry-run=server", body=a_slice(THEIRS))
        ),
        what="the policy is heeded",
    )
    return path


def a_slice(node: str, **spec: object) -> Json:
    shown = resource_slice(cards("l4-24g", 1, node), node=node, node_uid="u", driver=DRIVER)
    del shown["metadata"]["ownerReferences"]
    shown["spec"] |= spec
    return {**shown, "spec": {k: v for k, v in shown["spec"].items() if v is not None}}


def write(scene: Scene, agent: Path, verb: str, *more: str, body: Json | None = None) -> str:
    """Do something as the agent; return what the server says against it."""
    text = json.dumps(body) if body else None
    where = ("-f", "-") if body else ()
    done = scene.cluster.kubectl(verb, *where, *more, stdin=text, check=False, kubeconfig=agent)
    return done.stderr if done.returncode else ""


def test_it_writes_the_slices_of_its_own_node(shared_scene: Scene, agent: Path) -> None:
    assert write(shared_scene, agent, "create", body=a_slice(OURS)) == ""
    assert write(shared_scene, agent, "replace", body=a_slice(OURS)) == ""
    name = a_slice(OURS)["metadata"]["name"]
    assert write(shared_scene, agent, "delete", "resourceslice", name) == ""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (a_slice(THEIRS), "may write slices of that node alone"),
        (a_slice(OURS, nodeName=None, allNodes=True), "may write slices of that node alone"),
        (a_slice(OURS, driver="gpu.nvidia.com"), "of its own driver alone"),
        # What is taken of a card is counted by pool and card, on whatever node.
        (a_slice(OURS, pool=POOL_OF_THEIRS), "may write the pool of that node alone"),
    ],
)
def test_it_writes_no_others(shared_scene: Scene, agent: Path, body: Json, expected: str) -> None:
    assert expected in write(shared_scene, agent, "create", body=body)


def test_it_neither_changes_nor_removes_those_of_another_node(
    shared_scene: Scene, agent: Path
) -> None:
    theirs = a_slice(THEIRS)
    shared_scene.api.create("resourceslices", theirs)
    name = theirs["metadata"]["name"]
    try:
        replaced = write(shared_scene, agent, "replace", body=theirs)
        deleted = write(shared_scene, agent, "delete", "resourceslice", name)
    finally:
        shared_scene.api.delete("resourceslices", name)

    assert "that node alone" in replaced
    assert "that node alone" in deleted


def test_it_removes_what_another_one_left_of_its_node(shared_scene: Scene, agent: Path) -> None:
    left = a_slice(OURS, pool=POOL_OF_THEIRS)
    shared_scene.api.create("resourceslices", left)
    name = left["metadata"]["name"]

    changed = write(shared_scene, agent, "replace", body=left)

    assert "may write the pool of that node alone" in changed
    assert write(shared_scene, agent, "delete", "resourceslice", name) == ""


def test_a_token_that_belongs_to_no_pod_writes_nothing(shared_scene: Scene, agent: Path) -> None:
    cluster = shared_scene.cluster
    token = cluster.kubectl("create", "token", account.NAME, "-n", account.NAME).stdout.strip()
    path = agent.with_name("unbound")
    pki.write_kubeconfig(path, pki.kubeconfig(cluster.server, cluster.ca_pem, token))

    assert "bound to the agent's pod" in write(shared_scene, path, "create", body=a_slice(OURS))


@pytest.mark.parametrize("resource", ["pods", "secrets", "resourceclaimtemplates"])
def test_it_reads_nothing_that_it_does_not_need(
    shared_scene: Scene, agent: Path, resource: str
) -> None:
    assert "forbidden" in write(shared_scene, agent, "get", resource, "--all-namespaces")


def test_a_slice_of_sixty_four_cards_with_a_failed_one_is_accepted(
    shared_scene: Scene, agent: Path
) -> None:
    """Without its taint where the gate for that is off, which the agent notices."""
    many = cards("l4-24g", 64, OURS)
    broken = {many[3].uuid: "xid-79"}
    full = resource_slice(many, node=OURS, node_uid="u", driver=DRIVER, unhealthy=broken)
    del full["metadata"]["ownerReferences"]

    assert write(shared_scene, agent, "create", body=full) == ""
    name = full["metadata"]["name"]
    stored = shared_scene.api.get("resourceslices", name)
    shared_scene.api.delete("resourceslices", name)
    kept = versions.of(shared_scene.cluster.version).keeps_taints
    assert dropped_fields(full, stored) == (() if kept else ("taints",))
    assert is_same(stored, {**full, "metadata": stored["metadata"]}) == kept
