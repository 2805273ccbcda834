"""`hami-dra revert`: converted manifests become what they were."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.cli.documents import split
from hami_dra.migration import Json
from hami_dra.migration.record import ANNOTATION

CASES = Path(__file__).parents[2] / "cases"
EXAMPLES = sorted((Path(__file__).parents[3] / "manifests" / "examples").glob("*.yaml"))

PLAIN = """\
# a chart's own
kind: ConfigMap
metadata: {name: odd}   # odd   spacing
"""

DEPLOYMENT = """\
# the service
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # the name
  namespace: team
spec:
  template:
    metadata:
      labels: {app: "web"}
    spec:
      containers:
        - name: 'main'   # the only one
          image: "i"
          env:
            # ours
            - name: A  # kept
              value: "1"
          resources:
            limits:
              cpu: 1
              nvidia.com/gpu: 1
              nvidia.com/gpumem: 8000
              nvidia.com/priority: 1
"""

FLOW = "{kind: Pod, spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpumem: 1}}}]}}\n"

THEIRS = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: hami-theirs}
"""


def run(command: str, text: str) -> Result:
    return CliRunner().invoke(app, [command, "-f", "-"], input=text)


def documents(text: str) -> list[Json]:
    found = (YAML(typ="safe").load(document.text) for document in split("output", text))
    return [document for document in found if document]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_come_back_byte_for_byte(file: Path) -> None:
    """What stood in no particular order comes back in that order."""
    converted = run("convert", file.read_text()).stdout

    assert run("revert", converted).stdout == file.read_text() != converted


@pytest.mark.parametrize(
    "text",
    [
        DEPLOYMENT,
        f"{PLAIN}---\n{DEPLOYMENT}",
        f"---\n{DEPLOYMENT}--- # next\n{PLAIN}",
        f"{DEPLOYMENT}---\n{PLAIN}---\n{DEPLOYMENT}",
        f"--- {FLOW}--- {FLOW}",
        f"{PLAIN}---\n--- {FLOW}---\n{PLAIN}",
        f"\ufeff{DEPLOYMENT}---\n\ufeff{DEPLOYMENT}--- # next\n\ufeff{PLAIN}",
    ],
)
def test_a_converted_stream_comes_back_byte_by_byte(text: str) -> None:
    """Comments, order, quotes and separators are those of the original; templates are gone."""
    converted = run("convert", text)
    result = run("revert", converted.stdout)

    assert (converted.exit_code, converted.stderr) == (0, "")
    kinds = [document["kind"] for document in documents(converted.stdout)]
    assert [kind for kind in kinds if kind != "ResourceClaimTemplate"] == [
        document["kind"] for document in documents(text)
    ]
    assert result.stdout == text
    assert (result.exit_code, result.stderr) == (0, "")


def test_documents_without_a_record_are_byte_identical() -> None:
    """What nobody converted is not touched, other people's templates and GPU pods included."""
    text = f"---\n{PLAIN}---\n{THEIRS}---\n{DEPLOYMENT}...\n"

    assert run("revert", text).stdout == text


def test_a_template_that_is_still_referred_to_stays() -> None:
    """A document that cannot be reverted keeps the template that it needs."""
    converted = run("convert", f"{DEPLOYMENT}---\n{DEPLOYMENT}").stdout
    damaged = converted.replace('{"containers"', '{"containerz"', 1)

    result = run("revert", damaged)

    kinds = [document["kind"] for document in documents(result.stdout)]
    assert kinds == ["ResourceClaimTemplate", "Deployment", "Deployment"]
    assert result.exit_code == 3
    assert "Deployment/web (in spec.template): not reverted: metadata.annotations" in result.stderr
    assert "1 of 2 GPU workloads could not be reverted" in result.stderr


def test_a_list_is_not_half_reverted() -> None:
    """One bad record leaves the whole document as it is."""
    limits = {"limits": {"nvidia.com/gpu": 1}}
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "c", "resources": limits}]}}
    converted = documents(run("convert", json.dumps({"kind": "List", "items": [pod, pod]})).stdout)
    listed = converted[-1]
    listed["items"][1]["metadata"]["annotations"][ANNOTATION] = "{"
    text = json.dumps(listed)

    result = run("revert", text)

    assert (result.stdout, result.exit_code) == (text, 3)


def test_a_template_of_another_namespace_does_not_count() -> None:
    """A template is kept for a workload of its own namespace only."""
    converted = run("convert", DEPLOYMENT).stdout
    elsewhere = converted.replace("  namespace: team", "  namespace: other", 1)

    kinds = [document["kind"] for document in documents(run("revert", elsewhere).stdout)]

    assert kinds == ["Deployment"]


def test_unreadable_input_is_named() -> None:
    """Nothing is printed when a document cannot be parsed."""
    result = run("revert", "hami-dra.io/migration: [1\n")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "-:2:1: not YAML" in result.stderr
