"""`hami-dra explain`: what each container asked for, what it becomes, and why."""

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.migration import Json
from tests.hami_dra.cli.test_files import PLAIN, POD

EXAMPLES = sorted((Path(__file__).parents[3] / "manifests" / "examples").glob("*.yaml"))

PODS = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  annotations: {nvidia.com/use-gputype: A100}
spec:
  initContainers:
  - {name: setup, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}}}
  containers:
  - {name: share, resources: {limits: {nvidia.com/gpumem: 4000, nvidia.com/priority: 1}}}
  - {name: whole, resources: {limits: {nvidia.com/gpu: 2}}}
  - {name: none, resources: {limits: {nvidia.com/gpu: 0}}}
  - {name: other, image: i}
"""


def explain(text: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["explain", "-", *arguments], input=text)


def as_json(text: str, *arguments: str) -> dict[str, Json]:
    found = json.loads(explain(text, "-o", "json", *arguments).stdout)
    return {each["container"]: each for each in found}


def test_each_container_is_explained() -> None:
    found = as_json(PODS)

    assert list(found) == ["setup", "share", "whole", "none"]
    assert found["share"]["asked"] == ["gpumem=4000", "priority=1"]
    assert found["share"]["becomes"] == ["claim gpu-share", "1 card: cores 0, memory 4000Mi"]
    assert found["share"]["why"] == [
        "no gpu: HAMi's default, 1",
        "shared: others may have the rest of the card",
        "no gpucores: compute without a limit",
        "priority in CUDA_TASK_PRIORITY",
        "cards by annotation use-gputype",
    ]
    assert found["whole"]["becomes"][1] == "2 cards: cores 100, slots 100"
    assert "exclusive: nobody else on the card" in found["whole"]["why"]
    assert found["none"]["becomes"] == ["no card"]
    assert found["setup"]["claim"] == "gpu-share"


def test_a_notice_stands_with_its_container() -> None:
    found = as_json(PODS)

    assert [n.split(":")[0] for n in found["whole"]["notices"]] == ["KubernetesAssumed"]
    assert all("notices" not in found[name] for name in ("share", "none"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_a_terminal_of_100_columns_is_wide_enough(file: Path) -> None:
    shown = explain(file.read_text()).stdout

    assert shown.splitlines()[1].split() == ["CONTAINER", "ASKED", "BECOMES", "WHY"]
    assert max(map(len, shown.splitlines())) <= 100


def test_what_was_converted_is_explained_from_its_record() -> None:
    converted = CliRunner().invoke(app, ["convert", "-f", "-"], input=PODS).stdout

    assert as_json(converted) == as_json(PODS)


def test_a_rejected_pod_says_why() -> None:
    result = explain(POD.format(name="x").replace("gpu: 1", "gpu: -1"))

    assert result.exit_code == 3
    assert "rejected: spec.containers[0].resources.limits.nvidia.com/gpu: Invalid" in " ".join(
        result.stdout.split()
    )


def test_a_kind_that_stays_as_it_is_says_why() -> None:
    ray = "apiVersion: ray.io/v1\nkind: RayCluster\nspec: {limits: {nvidia.com/gpu: 1}}\n"

    result = explain(ray)

    assert result.exit_code == 3
    assert "rejected: KubeRay reads the number of GPUs" in " ".join(result.stdout.split())


def test_markdown_has_a_row_for_each_container() -> None:
    rows = explain(PODS, "-o", "markdown").stdout.splitlines()

    assert rows[0] == "| WORKLOAD | CONTAINER | ASKED | BECOMES | WHY | NOTICES |"
    assert len(rows) == 6


def test_nothing_to_explain_is_said() -> None:
    assert explain(PLAIN).stdout == "nothing asks for a GPU in HAMi's words\n"


@pytest.mark.parametrize("what", ["", "pod/"])
def test_an_empty_name_is_a_usage_error(what: str) -> None:
    """It is what an unset variable leaves; all pods of a namespace were read, or a directory."""
    result = CliRunner().invoke(app, ["explain", what])

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"found {what!r}, expected FILE, - or pod/NAME" in result.stderr


def test_unreadable_input_is_named() -> None:
    result = explain("nvidia.com/gpu: [")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "-:2:1: not YAML" in result.stderr


@pytest.mark.parametrize("way", ["--kubeconfig", "KUBECONFIG"])
@pytest.mark.parametrize("name", ["there", "gone"])
def test_a_live_pod_is_read_from_the_cluster(name: str, way: str, tmp_path: Path) -> None:
    """The node that the scheduler chose does not count against the pod; its cards and version do.

    However the cluster is named: the pod and the cards come from the same one.
    """
    limits = {"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 50}
    pod = {
        "metadata": {"name": "there"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "resources": {"limits": limits}}],
        },
    }
    result = asyncio.run(_live(pod, name, way, tmp_path))

    if name == "there":
        assert "claim gpu-c" in result.stdout
        assert "11517Mi" in result.stdout
        assert "notice" not in result.stdout
    else:
        assert (result.exit_code, "404" in result.stderr) == (1, True)


SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "n1"},
    "spec": {
        "driver": "hami-core-gpu.project-hami.io",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "allowMultipleAllocations": True,
                "attributes": {"type": {"string": "hami-gpu"}},
                "capacity": {"memory": {"value": "23034Mi"}, "cores": {"value": "100"}},
            }
        ],
    },
}


async def _live(pod: Json, name: str, way: str, tmp_path: Path) -> Result:
    """Explain a pod of a server that has this one and a card."""

    async def answer(request: web.Request) -> web.Response:
        if "/pods/" not in request.path:
            return web.json_response({"major": "1", "minor": "37", "items": [SLICE]})
        is_there = request.path == "/api/v1/namespaces/team/pods/there"
        return web.json_response(pod if is_there else {}, status=200 if is_there else 404)

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    config = tmp_path / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    arguments = ["explain", f"pod/{name}", "-n", "team"]
    environment = {way: str(config)}
    if way == "--kubeconfig":
        arguments, environment = [*arguments, way, str(config)], {}
    try:
        return await asyncio.to_thread(CliRunner().invoke, app, arguments, env=environment)
    finally:
        await runner.cleanup()


def test_thousands_are_written_out_as_the_api_server_does_not() -> None:
    """It stores 8000 as 8k, which nobody reads as MiB; other suffixes are the author's."""
    stored = PODS.replace("gpumem: 4000", "gpumem: 8k").replace("gpumem: 1000", "gpumem: 1Ki")

    found = as_json(stored)

    assert found["share"]["asked"] == ["gpumem=8000", "priority=1"]
    assert found["setup"]["asked"] == ["gpu=1", "gpumem=1Ki"]
