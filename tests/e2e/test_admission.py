"""The webhook in the path of real pod creations: dry runs, refusals, outages, and doing without."""

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from ruamel.yaml import YAML

from hami_dra.lab import webhook
from hami_dra.lab.demo import NODES
from hami_dra.lab.failure import KubectlError
from hami_dra.lab.nodes import add_node
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.record import ANNOTATION
from tests.e2e.world import World, managed_amounts, pod
from tests.pods import migrated, pods

pytestmark = pytest.mark.cluster

CASES = Path(__file__).parents[1] / "cases"
EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"

HINT = "hami.io/node-scheduler-policy"

REFUSED = {
    "bytes": (
        pod("p", {"gpu": 1, "gpumem": "16Gi"}),
        ["nvidia.com/gpumem: found 16Gi", "the unit is MiB", "write nvidia.com/gpumem: 16384"],
    ),
    "negative": (
        pod("p", {"gpu": -1}),
        ["nvidia.com/gpu: Invalid value: -1: must be greater than or equal to 0"],
    ),
    "requests without limits": (
        pod("p", {"cpu": 1}, requests={"gpu": 1}),
        ["Limit must be set", "write nvidia.com/gpu under limits"],
    ),
    "unequal": (
        pod("p", {"gpu": 1, "gpumem": 100}, requests={"gpu": 2}),
        ["must be equal to nvidia.com/gpu limit of 1"],
    ),
    "a choice of nothing": (
        pod("p", {"gpu": 1}, annotations={"nvidia.com/use-gputype": ","}),
        ["metadata.annotations[nvidia.com/use-gputype]", "matches no card"],
    ),
}


def test_what_a_workload_loses_is_an_event_of_its_owner(world: World) -> None:
    """The controller gets the warnings of its pods, and nobody reads them there."""
    template = pod("p", {"gpu": 1, "gpumem": 100}, annotations={HINT: "binpack"})
    labels = {"app": "owned"}
    world.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "owned"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {**template["metadata"], "labels": labels},
                    "spec": template["spec"],
                },
            },
        }
    )

    def told() -> list[str]:
        return [e["message"] for e in world.objects("events") if e.get("reason") == "HintLost"]

    until(lambda: len(world.objects("pods")) == 3, what="the pods are there")
    until(told, what="the owner is told")
    [replica_set] = world.objects("replicasets")
    described = world.kubectl("describe", "replicaset", replica_set["metadata"]["name"]).stdout

    [note] = told()
    assert note.startswith(f"HintLost: metadata.annotations[{HINT}]: no claim can say it;")
    assert "HintLost" in described


def test_a_dry_run_changes_the_pod_and_leaves_no_template(world: World) -> None:
    manifest = json.dumps(pod("p", {"gpu": 1, "gpumem": 4321}))

    shown = world.kubectl("apply", "--dry-run=server", "-o", "json", "-f", "-", stdin=manifest)

    seen = json.loads(shown.stdout)
    assert seen["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].startswith(
        "hami-1x4321mi"
    )
    assert world.objects("resourceclaimtemplates") == []
    world.apply(manifest)
    [template] = world.objects("resourceclaimtemplates")
    created = world.pod("p")["spec"]["resourceClaims"]
    assert created == seen["spec"]["resourceClaims"]
    assert created[0]["resourceClaimTemplateName"] == template["metadata"]["name"]


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_tells_the_author_what_to_write(world: World, case: str) -> None:
    manifest, said = REFUSED[case]

    with pytest.raises(KubectlError) as refused:
        world.apply(manifest)

    assert all(words in refused.value.stderr for words in said), refused.value.stderr
    assert world.objects("pods") == []
    assert world.objects("resourceclaimtemplates") == []


def test_a_pod_that_asks_for_no_card_passes_as_it_is(world: World) -> None:
    world.add_node("a")
    world.apply(pod("p", {"gpu": 0}))

    world.await_scheduled("p")

    assert "resourceClaims" not in world.pod("p")["spec"]


@pytest.mark.parametrize("word", ["gpumem", "gpumem-percentage", "gpucores"])
def test_zero_of_a_share_asks_for_a_card(world: World, word: str) -> None:
    """A present zero means all of it, and whoever names a share gets a card (rulings 3 and 8)."""
    world.add_node("a", l4_24g=1)
    world.apply(pod("p", {word: 0}))

    share = world.share("p")

    assert (share.memory_mib, share.cores) == (23034, 0)
    assert managed_amounts(world.pod("p")) == [{}]


def test_a_zero_that_we_wrote_asks_for_nothing(world: World) -> None:
    """A LimitRange makes us write one; a copy of such a pod needs no webhook (ruling 20)."""
    world.add_node("a")
    ours = {ANNOTATION: '{"containers":{"main":{"claims":["gpu-main"]}}}'}
    world.apply(pod("p", {"gpumem": 0}, annotations=ours))

    world.await_scheduled("p")

    assert "resourceClaims" not in world.pod("p")["spec"]


def test_an_opted_out_pod_is_left_alone(world: World) -> None:
    manifest = pod("p", {"gpu": 1})
    manifest["metadata"]["labels"] = {"hami.io/webhook": "ignore"}
    world.apply(manifest)

    assert world.pod("p")["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def test_without_the_webhook_gpu_pods_are_refused_and_others_are_not(world: World) -> None:
    world.scene.cluster.stop_process(world.scene.webhook.process)
    try:
        with pytest.raises(KubectlError) as refused:
            world.apply(pod("gpu", {"gpu": 1}))
        world.apply(pod("plain", {"cpu": 1}))
    finally:
        world.scene.restart_webhook()

    assert 'failed calling webhook "pods.hami-dra.io"' in refused.value.stderr
    assert "connection refused" in refused.value.stderr
    assert [each["metadata"]["name"] for each in world.objects("pods")] == ["plain"]
    world.apply(pod("gpu", {"gpu": 1}))
    assert "resourceClaims" in world.pod("gpu")["spec"]


def test_without_the_registration_the_guard_refuses_gpu_pods(world: World) -> None:
    manifest = json.dumps(pod("gpu", {"gpu": 1}))

    def refusal() -> str | None:
        arguments = ("create", "--dry-run=server", "-f", "-")
        return world.kubectl(*arguments, stdin=manifest, check=False).stderr or None

    webhook.unregister(world.scene.api)
    try:
        said = until(refusal, what="the API server heeds that the webhook is gone")
        world.apply(pod("plain", {"cpu": 1}))
    finally:
        webhook.register(world.scene.api, world.scene.webhook)
        webhook.await_registered(world.scene.api, world.namespace)

    assert "ValidatingAdmissionPolicy 'hami-dra-guard'" in said
    assert "its webhook is not registered" in said


def convert(*files: Path, kubernetes: str) -> str:
    """Run the CLI as a user of a version of Kubernetes would."""
    program = Path(sys.executable).with_name("hami-dra")
    arguments = [argument for file in files for argument in ("-f", str(file))]
    done = subprocess.run(
        [program, "convert", "--kube-version", kubernetes, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def outcome(world: World) -> list[tuple[object, ...]]:
    """Return what each workload's pods hold, apart from names and free choices."""
    return sorted(
        (
            share.pod.split("-")[0],
            "whole" if share.cores == 100 else f"{share.memory_mib} MiB",
            share.cores,
            share.slots,
            share.uuid if share.pod == "pinned-by-uuid" else "",
            share.product if share.pod == "pinned-by-type" else "",
        )
        for share in world.shares()
    )


def pods_of(manifest: str) -> int:
    """Count the pods that a manifest leads to."""
    replicas = {"Deployment": "replicas", "Job": "parallelism"}
    return sum(
        document["spec"].get(replicas.get(document["kind"]), 1)
        for document in YAML(typ="safe").load_all(manifest)
        if document["kind"] != "ResourceClaimTemplate"
    )


def allocate(world: World, manifests: Iterable[str]) -> list[tuple[object, ...]]:
    """Apply manifests to empty nodes, one after the other, and return what their pods hold."""
    found = []
    for manifest in manifests:
        world.apply(manifest)
        world.await_all_scheduled(pods_of(manifest))
        found.extend(outcome(world))
        world.kubectl("delete", "deployments,jobs,pods", "--all", "--wait=false")
        world.await_nothing("pods")
        world.await_nothing("resourceclaims")
    return found


def test_the_cli_and_the_webhook_lead_to_the_same_allocation(world: World) -> None:
    """Converted manifests need no webhook, and get what unconverted ones get with it."""
    for name, profiles in NODES.items():
        world.nodes[name] = add_node(world.scene.api, name, profiles)
    kubernetes = str(world.kubernetes)
    files = sorted(EXAMPLES.glob("*.yaml"))
    with_webhook = allocate(world, (file.read_text() for file in files))
    world.kubectl("delete", "resourceclaimtemplates", "--all")
    webhook.unregister(world.scene.api)
    try:
        without_webhook = allocate(world, (convert(file, kubernetes=kubernetes) for file in files))
    finally:
        webhook.register(world.scene.api, world.scene.webhook)
        webhook.await_registered(world.scene.api, world.namespace)

    assert len(with_webhook) > len(files)
    assert without_webhook == with_webhook


def golden_templates() -> list[Json]:
    """Return the templates of all golden cases."""
    return [
        document
        for expected in sorted(CASES.glob("*/expected.yaml"))
        for document in YAML(typ="safe").load_all(expected)
        if document.get("kind") == "ResourceClaimTemplate"
    ]


def drawn_templates() -> list[Json]:
    """Return the templates of pods as the property tests draw them."""
    found: dict[str, Json] = {}

    @settings(max_examples=1000, database=None)
    @given(pods())
    def draw(drawn: Json) -> None:
        result = migrated(drawn)
        for template in result[0].templates if result else ():
            found[template.name] = template.manifest()

    draw()
    return list(found.values())


def test_the_api_server_accepts_every_template(world: World) -> None:
    """CEL cost included: a dry run validates just as a creation does."""
    golden, drawn = golden_templates(), drawn_templates()

    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*golden, *drawn]})
    world.kubectl("create", "--dry-run=server", "-f", "-", stdin=manifest)

    assert len(golden) > 60
    assert len(drawn) > 60
