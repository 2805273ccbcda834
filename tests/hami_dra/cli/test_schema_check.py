"""`hami-dra convert --validate schema`: what the API has no place for is told, offline."""

import json
from pathlib import Path

import pytest
from kubernetes.client import models
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.cli.conversion import Converter, Located
from hami_dra.cli.documents import split
from hami_dra.cli.kinds import KINDS, Kind
from hami_dra.cli.schema_check import check
from hami_dra.cli.sources import as_text
from hami_dra.kube.schema import QUANTITIES
from hami_dra.migration import Cards, Json, Policy
from tests.damage import DAMAGES, GOOD, REPORTED, damaged, place
from tests.hami_dra.migration.test_cases import read

TESTS = Path(__file__).parents[2]
CASES = [*TESTS.glob("cases/*/pod.yaml"), *TESTS.glob("cli_cases/*/in/*")]
CONTAINERS = "spec.template.spec.containers"
UNKNOWN = "found a field that Container does not have"


def convert(text: str, *arguments: str) -> Result:
    command = ["convert", "-f", "-", "--kube-version", "1.37", *arguments]
    return CliRunner().invoke(app, command, input=text)


def checked(*manifests: Json) -> Result:
    text = "".join(f"---\n{json.dumps(each, indent=2)}\n" for each in manifests)
    return convert(text, "--validate", "schema")


def test_what_the_api_takes_passes() -> None:
    result = checked(GOOD, REPORTED)

    assert (result.exit_code, result.stderr) == (0, "")
    assert "ResourceClaimTemplate" in result.stdout


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_told_where_it_stands(name: str) -> None:
    result = checked(damaged(name))

    told, by, end = result.stderr.splitlines()
    assert told.startswith(f"-:2: Deployment/web: {place(name)}: found ")
    assert DAMAGES[name][2] in told
    assert by == "-:2: Deployment/web: refused by the schema of Kubernetes 1.37"
    assert end == "hami-dra: the check refused 1 of what was converted"
    assert result.exit_code == 3


def test_every_problem_of_every_document_is_told() -> None:
    worse = damaged("unknown field")
    worse["spec"]["replicas"] = "two"
    worse["spec"]["template"]["spec"]["containers"].append({"image": 5})

    result = checked(worse, GOOD, damaged("no selector"))

    first, second = "-:2: Deployment/web: ", f"-:{lines_of(worse, GOOD) + 2}: Deployment/web: "
    assert [line for line in result.stderr.splitlines() if " found " in line] == [
        f'{first}spec.replicas: found "two", expected a whole number',
        f"{first}{CONTAINERS}[0].imagePullPolcy: {UNKNOWN}, expected imagePullPolicy",
        f"{first}{CONTAINERS}[1].image: found 5, expected a string",
        f"{first}{CONTAINERS}[1].name: found nothing, expected a string",
        f"{second}spec.selector: found nothing, expected an object",
    ]
    assert result.stderr.endswith("hami-dra: the check refused 2 of what was converted\n")


def lines_of(*manifests: Json) -> int:
    return sum(len(json.dumps(each, indent=2).splitlines()) + 1 for each in manifests)


def test_a_report_has_the_places_as_fields() -> None:
    result = convert(json.dumps(damaged("no selector")), "--validate", "schema", "--report", "json")

    report = json.loads(result.stderr[: result.stderr.rindex("}") + 1])
    assert (report["changed"], report["rejected"], report["refused"]) == (1, 0, 1)
    assert report["objects"][-1]["result"] == "refused"
    assert report["objects"][-1]["notices"] == [
        {"code": "", "path": "spec.selector", "message": "found nothing, expected an object"}
    ]


def holding(kind: Kind, path: str, pod: Json) -> Json:
    """Return an object of a kind with a pod at one of its places, and nothing else."""
    node: object = pod
    for step in reversed(path.split(".") if path else []):
        node = [node] if step == "*" else {step: node}
    assert isinstance(node, dict)
    api = f"{kind.group}/{kind.version or 'v1'}".removeprefix("/")
    return {"apiVersion": api, "kind": kind.kind, "metadata": {"name": "x"}, **node}


@pytest.mark.parametrize(
    ("kind", "path"), [(kind, path) for kind in KINDS if not kind.reason for path in kind.pods]
)
def test_the_pods_of_every_kind_are_checked(kind: Kind, path: str) -> None:
    container = {"name": "main", "imge": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    pod = {"metadata": {"labels": {}}, "spec": {"containers": [container]}}

    result = checked(holding(kind, path, pod))

    where = path.replace(".*", "[0]")
    inside = f"{where}.spec.containers[0].imge".removeprefix(".")
    assert f" {inside}: {UNKNOWN}, expected image\n" in result.stderr


def test_what_is_around_the_pods_of_other_kinds_is_their_own() -> None:
    pod = GOOD["spec"]["template"]
    volcano = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"tasks": [{"template": pod, "policies": 7}]},
    }

    result = checked(volcano)

    assert (result.exit_code, result.stderr) == (0, "")


def problems(documents: list[Located]) -> set[tuple[str, str]]:
    return {(entry.title, str(remark)) for entry in check(documents) for remark in entry.remarks}


@pytest.mark.parametrize("file", CASES, ids=lambda file: str(file.relative_to(TESTS)))
def test_no_conversion_of_a_golden_case_adds_a_problem(file: Path) -> None:
    """What an original lacks, its conversion lacks as well, and no more."""
    policy = Policy.model_validate(read(file.with_name("policy.yaml")))
    cards = Cards(frozenset(read(file.with_name("cards.yaml")).get("memory_mib", ())))
    data = file.read_bytes()
    documents = [each for each in split("x", as_text("x", data)) if "kind" in each.text]
    originals = [(each.where, each.parsed().value) for each in documents]

    converted = Converter(policy, cards).convert("x", data).documents

    assert problems(converted) <= problems(originals)


@pytest.mark.parametrize("file", sorted((TESTS.parent / "manifests/examples").glob("*.yaml")))
def test_the_examples_pass(file: Path) -> None:
    result = convert(file.read_text(), "--validate", "schema", "--strict")

    assert (result.exit_code, result.stderr) == (0, "")


def test_the_fields_that_are_called_quantities_are_in_the_api() -> None:
    every = {
        written
        for name in dir(models)
        for written in getattr(getattr(models, name), "attribute_map", {}).values()
    }

    assert every >= QUANTITIES
