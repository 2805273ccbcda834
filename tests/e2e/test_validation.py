"""`hami-dra convert --validate=server`: the real API server judges what was converted."""

import json

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.migration import Json
from tests.e2e.world import World

pytestmark = pytest.mark.cluster


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
    assert "-:2: Job/train: refused by the API server: 404" in result.stderr
