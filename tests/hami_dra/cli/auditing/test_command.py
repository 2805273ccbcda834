"""`hami-dra audit` as people call it, on an API server that shows the objects of a file."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.migration import Json
from tests.manifest_api import SCENE, ManifestApi, documents, serving

PROGRAM = Path(sys.executable).with_name("hami-dra")
GOLDEN = SCENE.parent
GPU = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}}}
DATE = ("--date", "2026-11-30")


@pytest.fixture
def api() -> ManifestApi:
    return ManifestApi(documents(SCENE))


@pytest.fixture
def kubeconfig(api: ManifestApi, tmp_path: Path) -> Iterator[Path]:
    with serving(api, tmp_path) as written:
        yield written


def audit(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", "--kubeconfig", str(kubeconfig), *arguments])


def outcomes(done: Result) -> dict[str, str]:
    found = json.loads(done.stdout)
    return {f"{each['namespace']}/{each['object']}": each["outcome"] for each in found["workloads"]}


@pytest.mark.parametrize(
    ("output", "file"),
    [("table", "table.txt"), ("json", "audit.json"), ("markdown", "audit.md")],
)
def test_a_cluster_of_three_teams(
    kubeconfig: Path, pytestconfig: pytest.Config, output: str, file: str
) -> None:
    """Read the golden files: they hold one of everything that is told apart."""
    done = subprocess.run(
        [PROGRAM, "audit", "--kubeconfig", str(kubeconfig), "-o", output, *DATE],
        capture_output=True,
        text=True,
        check=False,
    )
    if pytestconfig.getoption("update"):
        (GOLDEN / file).write_text(done.stdout)

    assert done.stdout == (GOLDEN / file).read_text()
    assert done.stderr == "hami-dra: 1 of 10 workloads are rejected\n"
    assert done.returncode == 3


def test_owned_objects_count_once_with_their_owner(kubeconfig: Path) -> None:
    found = outcomes(audit(kubeconfig, "-o", "json"))

    assert not [name for name in found if "chat-" in name]
    assert found["training/Pod/tuning-worker-x7"] == "converts"  # Ray's own manifest stays


def test_kinds_are_found_in_every_version_of_their_group(tmp_path: Path) -> None:
    """One group has kinds of several operators, and no version has them all."""
    spec = {"template": {"spec": {"containers": [GPU]}}}
    kinds = [
        ("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": {"Worker": spec}}),
        ("kubeflow.org/v2beta1", "TFJob", {"tfReplicaSpecs": {"Worker": spec}}),
        ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": {"Worker": spec}}),
    ]
    items = [
        {"apiVersion": v, "kind": k, "metadata": {"name": "x", "namespace": "n"}, "spec": s}
        for v, k, s in kinds
    ]
    with serving(ManifestApi(items), tmp_path) as kubeconfig:
        found = outcomes(audit(kubeconfig, "-o", "json"))

    assert found == {
        "n/MPIJob/x (spec.mpiReplicaSpecs.Worker.template)": "converts",
        "n/TFJob/x (spec.tfReplicaSpecs.Worker.template)": "converts",
    }


def owned(version: str, kind: str, name: str, by: Json, spec: Json) -> Json:
    """Write an object that another one made."""
    owner = {
        "apiVersion": by["apiVersion"],
        "kind": by["kind"],
        "uid": by["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": name, "namespace": "n", "uid": name, "ownerReferences": [owner]}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def test_what_an_owner_without_pods_made_counts_itself(tmp_path: Path) -> None:
    """A Rollout may name a Deployment, scales that to nothing and has ReplicaSets of its own."""
    template: Json = {"template": {"spec": {"containers": [GPU]}}}
    named = {"kind": "Deployment", "metadata": {"name": "d", "namespace": "n", "uid": "d"}}
    deployment: Json = {"apiVersion": "apps/v1", **named, "spec": {"replicas": 0, **template}}
    rollouts: list[Json] = [
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Rollout",
            "metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"replicas": 3, **spec},
        }
        for name, spec in (("refers", {"workloadRef": {"name": "d"}}), ("says", template))
    ]
    sets = [
        owned("apps/v1", "ReplicaSet", f"rs-{by['metadata']['name']}", by, spec)
        for by, spec in (
            (deployment, {"replicas": 0, **template}),
            *((rollout, {"replicas": 3, **template}) for rollout in rollouts),
        )
    ]
    pods = [
        owned("v1", "Pod", f"pod-{by['metadata']['name']}", by, template["template"]["spec"])
        for by in sets
    ]

    with serving(ManifestApi([deployment, *rollouts, *sets, *pods]), tmp_path) as kubeconfig:
        done = audit(kubeconfig, "-o", "json")

    found = json.loads(done.stdout)["workloads"]
    assert {each["object"]: each["copies"] for each in found} == {
        "Deployment/d": 0,
        "ReplicaSet/rs-refers": 3,
        "Rollout/says": 3,
    }


def test_pages_change_nothing(kubeconfig: Path, api: ManifestApi) -> None:
    whole = audit(kubeconfig, "-o", "json", *DATE)
    asked = len(api.asked)
    api.page = 1

    assert audit(kubeconfig, "-o", "json", *DATE).stdout == whole.stdout
    assert len(api.asked) > 2 * asked


def test_one_namespace_asks_for_nothing_of_others(kubeconfig: Path, api: ManifestApi) -> None:
    done = audit(kubeconfig, "-n", "sandbox", "-o", "json")

    assert set(outcomes(done)) == {"sandbox/Pod/notebook", "sandbox/Pod/viewer"}
    assert done.exit_code == 0
    lists = [path for path in api.asked if path.startswith(("/api/v1/", "/apis/apps/v1/"))]
    assert all("/namespaces/sandbox" in path for path in lists)
    assert not [path for path in api.asked if path.endswith(("queues", "flavors"))]


def test_a_namespace_that_opted_out_or_is_not_there_is_told(kubeconfig: Path) -> None:
    alone = audit(kubeconfig, "-n", "legacy-only", "-o", "json")
    missing = audit(kubeconfig, "-n", "nowhere")

    assert outcomes(alone) == {"legacy-only/Pod/old": "person"}
    assert missing.exit_code == 1
    assert "could not read namespace nowhere: there is no such namespace" in missing.stderr


def test_what_may_not_be_read_hides_nothing_else(kubeconfig: Path, api: ManifestApi) -> None:
    """Owners that nobody may see leave what they own to be judged by itself."""
    api.refused = {"deployments", "podgroups", "resourceslices"}
    done = audit(kubeconfig, "-o", "json")

    found = json.loads(done.stdout)
    assert done.exit_code == 1
    for name in ("deployments.apps", "podgroups.scheduling.volcano.sh", "resourceslices"):
        assert f"hami-dra: could not read {name}" in done.stderr
    assert "403 Forbidden" in done.stderr
    assert {each["what"] for each in found["unread"]} >= {"deployments.apps"}
    assert outcomes(done)["inference/ReplicaSet/chat-5db6446797"] == "converts"
    assert outcomes(done)["inference/StatefulSet/ranker"] == "rejected"  # a percentage of what?


def test_cards_can_come_from_a_file(kubeconfig: Path, api: ManifestApi, tmp_path: Path) -> None:
    cards = tmp_path / "cards.yaml"
    cards.write_text("cards: [{model: NVIDIA L4, memory: 20000Mi, count: 8}]\n")

    done = audit(kubeconfig, "--inventory", str(cards), "-o", "json")

    [ranker] = [each for each in json.loads(done.stdout)["workloads"] if "ranker" in each["object"]]
    assert ranker["after"]["nvidia.com/gpumem"] == 2 * 5000
    assert not [path for path in api.asked if path.endswith("/resourceslices")]


def test_cards_of_no_known_model_have_a_size_too(kubeconfig: Path, tmp_path: Path) -> None:
    cards = tmp_path / "cards.yaml"
    cards.write_text("cards: [{memory: 20000Mi}, {memory: 10000Mi}]\n")

    done = audit(kubeconfig, "--inventory", str(cards), "-o", "json")

    found = json.loads(done.stdout)
    [ranker] = [each for each in found["workloads"] if "ranker" in each["object"]]
    assert ranker["before"]["nvidia.com/gpumem"] == 2 * 5000
    assert None not in {found["total"][each]["memoryMiB"] for each in ("before", "after")}


def test_a_report_is_written_beside_what_is_printed(kubeconfig: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"

    beside = audit(kubeconfig, "--html", str(report), *DATE)
    alone = audit(kubeconfig, "-o", "html", *DATE)

    assert beside.stdout == (GOLDEN / "table.txt").read_text()
    assert report.read_text() == alone.stdout
    assert "<code>hami-dra audit -A</code>" in alone.stdout


def test_a_report_goes_into_a_pipe_and_takes_the_place_of_nothing(
    kubeconfig: Path, tmp_path: Path
) -> None:
    """With root, `--html /dev/stdout` put a file there, for everybody and for good."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)

    with subprocess.Popen(["/bin/cat", pipe], stdout=subprocess.PIPE) as reader:
        done = audit(kubeconfig, "--html", str(link))
        written, _ = reader.communicate()
    unnamed = audit(kubeconfig, "--html", "")

    assert (done.exit_code, pipe.is_fifo(), link.is_symlink()) == (3, True, True)
    assert written.startswith(b"<!DOCTYPE html>")
    assert unnamed.exit_code == 2
    assert "--html: found an empty name, expected a file" in unnamed.stderr


def test_a_report_that_cannot_be_written_is_told(kubeconfig: Path, tmp_path: Path) -> None:
    done = audit(kubeconfig, "--html", str(tmp_path / "missing" / "report.html"))

    assert done.exit_code == 1
    assert "No such file" in done.stderr


def test_a_cluster_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    api = ManifestApi([])
    api.server_close()

    done = audit(api.write_kubeconfig(tmp_path / "kubeconfig"))

    assert done.exit_code == 1
    assert done.stderr.startswith("hami-dra: cluster: ")
    assert not done.stdout


def test_an_empty_cluster_is_no_trouble(tmp_path: Path) -> None:
    with serving(ManifestApi([]), tmp_path) as kubeconfig:
        done = audit(kubeconfig)

    assert (done.stdout, done.stderr, done.exit_code) == (
        "nothing asks for a GPU in HAMi's words\n",
        "",
        0,
    )


@pytest.mark.parametrize("format_", ["table", "markdown", "html"])
def test_an_account_that_may_read_nothing_is_not_told_that_there_is_nothing(
    format_: str, kubeconfig: Path, api: ManifestApi
) -> None:
    api.refused = {path.rpartition("/")[2] for path in api.by_path}

    done = audit(kubeconfig, "-o", format_)

    assert done.exit_code == 1
    assert "othing that could be read asks for a GPU" in unescape(done.stdout)
    assert "othing asks" not in done.stdout


def test_two_ways_to_say_where_are_refused(tmp_path: Path) -> None:
    done = audit(tmp_path, "-A", "-n", "team")

    assert done.exit_code == 2
    assert "expected one of them" in done.stderr


def test_a_terminal_sees_what_is_being_read(kubeconfig: Path) -> None:
    """A pipe does not: the golden tests compare all of standard error."""
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, "audit", "--kubeconfig", str(kubeconfig)],
        stdout=subprocess.DEVNULL,
        stderr=follower,
    ):
        os.close(follower)
        shown = b""
        while chunk := _read(leader):
            shown += chunk
    os.close(leader)

    assert b"reading deployments.apps: 3" in shown
    assert b"\r\x1b[K" in shown


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except OSError:  # Linux says so when the last writer has gone
        return b""
