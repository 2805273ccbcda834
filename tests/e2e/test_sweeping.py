"""Templates come and go on a real cluster, under the rights of the shipped ServiceAccount."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from hami_dra.kube.removal import Effect
from hami_dra.kube.session import Session
from hami_dra.kube.sweeper import Sweeper
from hami_dra.kube.unused import UNUSED_SINCE
from hami_dra.lab import pki
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.e2e.world import World, pod

pytestmark = pytest.mark.cluster

TEMPLATES = "resourceclaimtemplates"
ASKED = {"gpu": 1, "gpumem": 777}
PROGRAM = Path(sys.executable).with_name("hami-dra")


class Meddled(Session):
    """A session before whose deletes in a namespace somebody else does something."""

    namespace = ""
    meddle: Callable[[], object] = staticmethod(lambda: None)

    async def delete(self, path: str, *, options: Json | None = None) -> Json:
        """Let the other one go first."""
        if f"/{self.namespace}/" in path:
            await asyncio.to_thread(self.meddle)
        return await super().delete(path, options=options)


def sweep(
    world: World, *, ttl_s: float = 0, meddle: Callable[[], object] = lambda: None
) -> Sweeper:
    """Make one pass as the webhook would, with its own account."""
    cluster = world.scene.cluster
    account = cluster.directory / "webhook"
    token = (account / "token").read_text()
    kubeconfig = account / "kubeconfig"
    pki.write_kubeconfig(kubeconfig, pki.kubeconfig(cluster.server, cluster.ca_pem, token))

    async def once() -> Sweeper:
        async with await Meddled.connect(kubeconfig) as session:
            session.namespace, session.meddle = world.namespace, meddle
            ttl = timedelta(seconds=ttl_s)
            sweeper = Sweeper(session, ttl=ttl, pause_s=0, later_looks_s=(0.5,))
            await sweeper.sweep()
            assert sweeper.trouble == ""
            return sweeper

    return asyncio.run(once())


def prune(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    where = ("--kubeconfig", str(world.scene.cluster.kubeconfig), "-n", world.namespace)
    return subprocess.run(
        [PROGRAM, "prune", *where, *arguments], capture_output=True, text=True, check=False
    )


def unused_template(world: World) -> str:
    """Have a template that was needed once, and return its name."""
    world.apply(pod("first", ASKED))
    [template] = world.objects(TEMPLATES)
    world.delete("first")
    world.await_nothing("pods")
    return str(template["metadata"]["name"])


def marks(world: World) -> list[str | None]:
    return [
        (each["metadata"].get("annotations") or {}).get(UNUSED_SINCE)
        for each in world.objects(TEMPLATES)
    ]


def test_a_template_is_marked_swept_and_made_again_for_the_next_pod(world: World) -> None:
    world.add_node("n", l4_24g=1)
    name = unused_template(world)

    sweep(world, ttl_s=3600)
    marked = marks(world)
    sweep(world, ttl_s=3600)
    world.apply(pod("second", ASKED))
    sweep(world)  # in use again: not even an expired mark ends it
    used = marks(world)
    world.delete("second")
    world.await_nothing("pods")
    sweep(world)
    sweep(world)

    assert marked[0] is not None
    assert used == [None]
    assert world.objects(TEMPLATES) == []
    world.apply(pod("third", ASKED))
    world.await_scheduled("third")
    assert [each["metadata"]["name"] for each in world.objects(TEMPLATES)] == [name]


def test_a_pod_admitted_between_look_and_delete_gets_its_template_back(world: World) -> None:
    """The webhook knows the template from its cache, so the pod's admission writes nothing."""
    world.add_node("n", l4_24g=1)
    unused_template(world)
    sweep(world, ttl_s=3600)

    done = sweep(world, meddle=partial(world.apply, pod("racer", ASKED)))

    assert done.effects[Effect.SWEPT] >= 1
    assert done.effects[Effect.PUT_BACK] == 1
    assert marks(world) == [None]
    world.await_scheduled("racer")


def test_somebodys_edit_between_look_and_delete_saves_a_template(world: World) -> None:
    name = unused_template(world)
    sweep(world, ttl_s=3600)

    edit = partial(world.kubectl, "label", f"resourceclaimtemplate/{name}", "kept=yes")
    done = sweep(world, meddle=edit)
    sweep(world)

    assert done.effects[Effect.OVERTAKEN] >= 1  # other namespaces may be ending just now
    assert len(world.objects(TEMPLATES)) == 1


def test_a_workload_without_pods_keeps_its_template(world: World) -> None:
    """A CronJob between two runs; its kind is listed under the rights that we ship."""
    name = unused_template(world)
    carried = pod("x", {"cpu": 1})["spec"] | {"restartPolicy": "Never"}
    carried["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
    job = {"template": {"spec": carried}}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}
    world.apply(
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec}
    )

    sweep(world)
    sweep(world)

    assert marks(world) == [None]
    shown = prune(world, "--older-than", "0s")
    assert "used by CronJob/c" in shown.stdout
    world.kubectl("delete", "cronjob", "c")


def test_converted_manifests_keep_the_template_that_they_placed(world: World) -> None:
    """GitOps: nothing refers to it in the cluster yet, and it stays."""
    manifest = json.dumps(pod("p", ASKED))
    converted = subprocess.run(
        [PROGRAM, "convert", "-f", "-"], input=manifest, capture_output=True, text=True, check=True
    )
    world.apply(converted.stdout)
    world.kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    world.await_nothing("pods")

    sweep(world)
    sweep(world)
    pruned = prune(world, "--older-than", "0s", "--yes")

    assert len(world.objects(TEMPLATES)) == 1
    assert "somebody applied it with kubectl" in pruned.stdout
    assert "deleted 0 of 1 templates" in pruned.stderr


def test_prune_shows_first_and_deletes_when_told_to(world: World) -> None:
    name = unused_template(world)
    world.apply(pod("user", {"gpu": 1, "gpumem": 778}))

    young = prune(world)
    shown = prune(world, "--older-than", "0s")
    as_json = json.loads(prune(world, "--older-than", "0s", "-o", "json").stdout)
    before = len(world.objects(TEMPLATES))
    done = prune(world, "--older-than", "0s", "--yes")

    assert (young.returncode, shown.returncode, done.returncode) == (0, 0, 0)
    assert "unused for less than 7 days" in young.stdout
    assert "none of them unused for long enough" in young.stderr
    assert "repeat with --yes" in shown.stderr
    assert {(each["name"] == name, each["outcome"]) for each in as_json} == {
        (True, "unused"),
        (False, "stays"),
    }
    assert before == 2
    assert "used by Pod/user" in done.stdout
    assert "deleted 1 of 2 templates" in done.stderr
    assert [each["metadata"]["name"] for each in world.objects(TEMPLATES)] != [name]
    assert len(world.objects(TEMPLATES)) == 1


def test_the_running_webhook_says_how_its_templates_fare(world: World) -> None:
    """The series that an alert can be built on."""
    world.apply(pod("p", {"gpu": 1, "gpumem": 779}))
    port = world.scene.webhook.port
    authority = world.scene.cluster.directory / "authority.pem"
    authority.write_bytes(world.scene.cluster.ca_pem)

    def metrics() -> str:
        call = ["curl", "--silent", "--cacert", str(authority), f"https://127.0.0.1:{port}/metrics"]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout

    text = until(lambda: metrics() or None, what="the metrics are shown")

    for series in (
        'hami_dra_webhook_templates_total{outcome="joined"}',
        'hami_dra_webhook_template_failures_total{reason="conflict"}',
        'hami_dra_webhook_template_sweeps_total{effect="swept"}',
    ):
        assert series in text
