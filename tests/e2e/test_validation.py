"""The real API server judges what the CLI made of manifests: converted, checked, reverted."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.cli.documents import split
from hami_dra.migration import Json
from tests.damage import DAMAGES, GOOD, REPORTED, damaged
from tests.e2e.world import World

pytestmark = pytest.mark.cluster

PROGRAM = Path(sys.executable).with_name("hami-dra")
EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"


def manifest(world: World, **container: object) -> Json:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    main = {"name": "main", "image": "i", "resources": {"limits": limits}, **container}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [main]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": world.namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def validated(world: World, *manifests: Json) -> Result:
    text = "\n---\n".join(json.dumps(each) for each in manifests)
    kubeconfig = str(world.scene.cluster.kubeconfig)
    arguments = ["convert", "-f", "-", "--validate", "server", "--kubeconfig", kubeconfig]
    return CliRunner().invoke(app, arguments, input=f"---\n{text}")


def test_what_a_server_would_take_is_not_stored(world: World) -> None:
    result = validated(world, manifest(world))

    assert (result.exit_code, result.stderr) == (0, "")
    assert world.objects("resourceclaimtemplates") == []
    assert world.scene.api.list("deployments", namespace=world.namespace) == []


def test_what_a_server_refuses_is_listed_by_document(world: World) -> None:
    """A wrong field and a wrong value of ours or the user's are told where they stand."""
    good = {**manifest(world), "metadata": {"name": "good", "namespace": world.namespace}}

    result = validated(world, manifest(world, imagePullPolicy="Perhaps"), good)

    assert result.exit_code == 3
    refused = [line for line in result.stderr.splitlines() if "refused by the API server" in line]
    assert len(refused) == 1
    assert refused[0].startswith("-:2: Deployment/web: refused by the API server: 422 Invalid")
    assert "imagePullPolicy" in refused[0]


def test_what_is_there_already_is_judged_as_well(world: World) -> None:
    """The names are taken, and what they stand for is still judged."""
    converted = CliRunner().invoke(app, ["convert", "-f", "-"], input=json.dumps(manifest(world)))
    world.apply(converted.stdout)

    assert validated(world, manifest(world)).exit_code == 0
    assert validated(world, manifest(world, imagePullPolicy="Perhaps")).exit_code == 3


def test_a_kind_that_the_server_lacks_is_told(world: World) -> None:
    job = manifest(world)["spec"]["template"]
    volcano = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": world.namespace},
        "spec": {"tasks": [{"template": job}]},
    }

    result = validated(world, volcano)

    assert result.exit_code == 3
    why = "the API server serves no Job of batch.volcano.sh/v1alpha1"
    assert f"-:2: Job/train: refused by the API server: {why}\n" in result.stderr


def test_server_and_schema_agree_on_what_is_no_manifest(world: World) -> None:
    """The offline check takes what the server takes, and refuses what it refuses."""
    named = {"good": GOOD, "reported": REPORTED, **{name: damaged(name) for name in DAMAGES}}

    by_server = {name: validated(world, each).exit_code for name, each in named.items()}
    by_schema = {name: offline(each) for name, each in named.items()}

    assert by_server == by_schema == {"good": 0, "reported": 0} | dict.fromkeys(DAMAGES, 3)


def offline(manifest: Json) -> int:
    arguments = ["convert", "-f", "-", "--validate", "schema"]
    return CliRunner().invoke(app, arguments, input=json.dumps(manifest)).exit_code


def hami_dra(*arguments: str, stdin: str) -> str:
    """Run the program as a user would."""
    command = [str(PROGRAM), *arguments, "-f", "-"]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def meaning(world: World, text: str) -> list[Any]:
    """Return what the API server would store, without what it makes up anew each time."""
    shown = world.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=text).stdout
    made_up = re.compile(r"(?<=kube-api-access-)\w+|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
    items = [each.parsed().value for each in split("kubectl", made_up.sub("", shown))]
    for item in items:
        del item["metadata"]["creationTimestamp"]
    return items


def test_what_was_reverted_means_to_the_server_what_it_did_before(world: World) -> None:
    """Workloads are compared as they are; pods as the webhook makes them, which tells as much."""
    manifests = [each.read_text() for each in sorted(EXAMPLES.glob("*.yaml"))]
    original = "---\n".join([*manifests, json.dumps(GOOD)])

    converted = hami_dra("convert", stdin=original)
    reverted = hami_dra("revert", stdin=converted)

    assert "ResourceClaimTemplate" in converted
    assert "ResourceClaimTemplate" not in reverted
    before = meaning(world, original)
    assert meaning(world, reverted) == before
    limits = before[0]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpumem"] == "8k"
