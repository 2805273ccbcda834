"""`hami-dra convert`: what a person gets for the manifests they have."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.cli.documents import split
from hami_dra.cli.kinds import KINDS, Kind
from hami_dra.migration import Json

CASES = Path(__file__).parents[2] / "cases"

PLAIN = """\
# Source: chart/templates/config.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: odd}   # odd   spacing
data:
      deep:   "1"
      script: |
        nvidia.com/gpu: 1
"""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # the name
  namespace: team
spec:
  replicas: 3
  template:
    metadata:
      labels: {app: "web"}
    spec:
      containers:
        - name: 'main'   # the only one
          image: "i"
          resources:
            limits:
              cpu: 1
              nvidia.com/gpu: 1
              nvidia.com/gpumem: 8000 # MiB
              nvidia.com/gpucores: 30
"""

REJECTED = """\
apiVersion: v1
kind: Pod
metadata: {name: bad}
spec:
  containers:
  - {name: m, image: i, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 16Gi}}}
"""


def convert(text: str | bytes, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["convert", "-f", "-", *arguments], input=text)


def documents(text: str) -> list[Json]:
    found = (YAML(typ="safe").load(document.text) for document in split("output", text))
    return [document for document in found if document]


def test_documents_without_legacy_keys_are_byte_identical() -> None:
    text = f"---\n{PLAIN}---\n\n# nothing here\n--- # more\n{PLAIN}...\n"

    result = convert(text)

    assert result.stdout == text
    assert result.exit_code == 0


def test_comments_order_and_quotes_stay_around_the_change() -> None:
    result = convert(DEPLOYMENT)

    assert "  name: web # the name\n" in result.stdout
    assert "        - name: 'main'   # the only one\n          image: \"i\"\n" in result.stdout
    assert 'labels: {app: "web"}' in result.stdout
    assert (
        "              cpu: 1\n            claims:\n              - name: gpu-main\n"
        in result.stdout
    )
    assert "nvidia.com/gpumem: 8000 #" not in result.stdout


def test_a_template_stands_once_directly_before_the_first_document_that_needs_it() -> None:
    result = convert(f"{PLAIN}---\n{DEPLOYMENT}---\n{DEPLOYMENT}")

    kinds = [document["kind"] for document in documents(result.stdout)]
    assert kinds == ["ConfigMap", "ResourceClaimTemplate", "Deployment", "Deployment"]
    assert documents(result.stdout)[1]["metadata"]["namespace"] == "team"


def test_a_template_of_an_earlier_conversion_is_not_written_again() -> None:
    """What was converted last month and what is new share it."""
    converted = convert(DEPLOYMENT).stdout

    result = convert(f"{converted}---\n{DEPLOYMENT}")

    kinds = [document["kind"] for document in documents(result.stdout)]
    assert kinds == ["ResourceClaimTemplate", "Deployment", "Deployment"]


def test_output_is_its_own_fixed_point() -> None:
    once = convert(f"{PLAIN}---\n{DEPLOYMENT}").stdout

    twice = convert(once)

    assert twice.stdout == once


def legacy(kind: Kind, path: str) -> Json:
    """Return an object of a kind with a legacy pod at a path."""
    pod: Json = {
        "metadata": {},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2}}}]},
    }
    around: Any = pod
    for step in reversed(path.split(".") if path else []):
        if step == "*":
            around = {"first": around} if "Specs" in path else [around]
        else:
            around = {step: around}
    version = kind.version or "v1"
    head = {"apiVersion": f"{kind.group}/{version}" if kind.group else "v1", "kind": kind.kind}
    return {**head, **around, "metadata": {"name": "x"}}


def pod_of(document: Json, path: str) -> Json:
    pod: Any = document
    for step in path.split(".") if path else []:
        pod = pod[step] if step != "*" else pod["first"] if "first" in pod else pod[0]
    return cast("Json", pod)


CONVERTED = [(kind, path) for kind in KINDS for path in kind.pods]


@pytest.mark.parametrize(
    ("kind", "path"), CONVERTED, ids=lambda each: str(getattr(each, "kind", each))
)
def test_every_workload_kind_is_converted_where_its_pod_stands(kind: Kind, path: str) -> None:
    found = documents(convert(json.dumps(legacy(kind, path))).stdout)

    assert found[0]["kind"] == "ResourceClaimTemplate"
    resources = pod_of(found[-1], path)["spec"]["containers"][0]["resources"]
    assert resources == {"claims": [{"name": "gpu-c"}]}


REFUSED = [kind for kind in KINDS if kind.reason]


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: f"{kind.kind}.{kind.group}")
def test_kinds_that_cannot_carry_claims_are_listed_with_the_reason(kind: Kind) -> None:
    text = json.dumps(legacy(kind, "spec.somewhere.*.template"))

    result = convert(text)

    assert (result.stdout, result.exit_code) == (text, 3)
    assert f"-:1: {kind.kind}/x: not converted: {kind.reason}\n" in result.stderr


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "requests.nvidia.com/gpumem"])
def test_an_unknown_kind_that_names_a_managed_resource_is_reported(key: str) -> None:
    """Nothing that HAMi would have understood passes without a word."""
    text = (
        f"apiVersion: example.com/v1\nkind: Trainer\nspec: {{workers: [{{res: {{{key}: 1}}}}]}}\n"
    )

    result = convert(text)

    assert (result.stdout, result.exit_code) == (text, 3)
    assert f"-:1: Trainer/unnamed: not converted: names {key}, but" in result.stderr


def test_a_kind_of_another_group_is_not_taken_for_a_built_in_one() -> None:
    """A Deployment of somebody else's API has its pods who knows where."""
    text = DEPLOYMENT.replace("apps/v1", "example.com/v1")

    assert (convert(text).stdout, convert(text).exit_code) == (text, 3)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.note], ids=lambda kind: kind.kind)
def test_kinds_that_need_no_change_are_noted(kind: Kind) -> None:
    text = f"apiVersion: v1\nkind: {kind.kind}\nspec: {{hard: {{limits.nvidia.com/gpumem: 1}}}}\n"

    result = convert(text)

    assert (result.stdout, result.exit_code) == (text, 0)
    assert result.stderr == f"-:1: {kind.kind}/unnamed: {kind.note}\n"


def test_items_of_a_list_are_converted() -> None:
    pod = {
        "kind": "Pod",
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }

    found = documents(
        convert(json.dumps({"kind": "List", "items": [{"kind": "Secret"}, pod]})).stdout
    )

    assert found[1]["items"][1]["spec"]["resourceClaims"][0]["name"] == "gpu-c"


def test_a_rejected_document_passes_unchanged_and_is_listed() -> None:
    result = convert(f"{REJECTED}---\n{DEPLOYMENT}")

    assert result.exit_code == 3
    assert result.stdout.startswith(REJECTED)
    assert "-:1: Pod/bad: not converted: spec.containers[0].resources.limits" in result.stderr
    assert "write nvidia.com/gpumem: 16384" in result.stderr
    assert "1 of 2 GPU workloads could not be converted" in result.stderr


def test_a_list_is_not_half_converted() -> None:
    def pod(memory: str) -> Json:
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": memory}
        return {
            "kind": "Pod",
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
        }

    text = json.dumps({"kind": "List", "items": [pod("1000"), pod("16Gi")]})

    assert convert(text).stdout == text


ALIASES = """\
kind: List
items:
- kind: Pod
  spec:
    containers:
    - name: a
      resources: &same
        limits: &amounts {nvidia.com/gpu: 1, nvidia.com/gpumem: 1000}
        requests: *amounts
    - {name: b, resources: *same}
- kind: Pod
  spec:
    containers:
    - name: c
      resources:
        limits:
          <<: *amounts
          nvidia.com/gpucores: 10
    - {name: d, resources: *same}
- kind: Deployment
  spec:
    template: &template
      spec:
        containers:
        - {name: e, resources: *same}
- kind: Deployment
  spec: {template: *template}
"""


def test_aliases_and_merge_keys_are_converted_where_they_are_used() -> None:
    items = documents(convert(ALIASES).stdout)[-1]["items"]

    specs = [item["spec"].get("template", item)["spec"] for item in items]
    resources = [[c["resources"] for c in spec["containers"]] for spec in specs]
    assert resources == [
        [{"claims": [{"name": "gpu-a"}]}, {"claims": [{"name": "gpu-b"}]}],
        [{"claims": [{"name": "gpu-c"}]}, {"claims": [{"name": "gpu-d"}]}],
        [{"claims": [{"name": "gpu-e"}]}],
        [{"claims": [{"name": "gpu-e"}]}],
    ]
    templates = [spec["resourceClaims"][0]["resourceClaimTemplateName"] for spec in specs]
    assert [name.split("-")[2] for name in templates] == ["0c", "10c", "0c", "0c"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nvidia.com/gpu: [1\n", "-:2:1: not YAML: while parsing a flow sequence"),
        ('b: 1\n---\na:\n  b: {"nvidia.com/gpu": 1\n', "-:5:1: not YAML: while parsing a flow"),
        ('{"nvidia.com/gpu": 1', "-:2:1: not YAML"),
        ("nvidia.com/gpu: 1\na: 2\na: 3\n", "-:3:1: found the key 'a' twice, first in line 2"),
        ("nvidia.com/gpu: {{ .Values.gpu }}\n", "this looks like a template, render it first"),
        ("&a nvidia.com/gpu: *b\n", "-:1:20: found *b, expected an anchor"),
        (b"nvidia.com/gpu: 1 # \xff\n", "-:1:21: byte 20 is not UTF-8"),
        ("nvidia.com/gpu: 1\n".encode("utf-16"), "UTF-8"),
    ],
)
def test_unreadable_input_is_named_and_nothing_is_printed(text: str | bytes, said: str) -> None:
    result = convert(text)

    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stdout == ""


def test_files_are_separated(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml", tmp_path / "empty.yaml"]
    for file, text in zip(files, [PLAIN.rstrip(), DEPLOYMENT, ""], strict=True):
        file.write_text(text)
    arguments = [argument for file in files for argument in ("-f", str(file))]

    result = CliRunner().invoke(app, ["convert", *arguments])

    kinds = [document["kind"] for document in documents(result.stdout)]
    assert kinds == ["ConfigMap", "ResourceClaimTemplate", "Deployment"]


def test_a_missing_file_is_named() -> None:
    result = CliRunner().invoke(app, ["convert", "-f", "no-such-file.yaml"])

    assert result.exit_code == 1
    assert "no-such-file.yaml: No such file" in result.stderr


def test_several_cards_take_the_form_of_the_named_version() -> None:
    pod = "kind: Pod\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 2}}}]}\n"

    old, new, unknown = (
        convert(pod, *arguments)
        for arguments in (["--kube-version", "1.35"], ["--kube-version", "1.36"], [])
    )

    devices = [documents(r.stdout)[0]["spec"]["spec"]["devices"] for r in (old, new, unknown)]
    assert [request["name"] for request in devices[0]["requests"]] == ["gpu-0", "gpu-1"]
    assert devices[0]["constraints"][0]["distinctAttribute"].endswith("/uuid")
    assert devices[1] == devices[2]
    assert devices[1]["requests"][0]["exactly"]["count"] == 2
    assert "KubernetesAssumed" in unknown.stderr
    assert new.stderr == ""


def test_a_version_that_is_none_is_a_usage_error() -> None:
    assert convert(PLAIN, "--kube-version", "new").exit_code == 2


def golden_cases() -> list[Path]:
    """Return the cases that need neither a policy nor card sizes."""
    return [
        case
        for case in sorted(CASES.iterdir())
        if {f.name for f in case.iterdir()} <= {"pod.yaml", "expected.yaml", "notices.txt"}
    ]


@pytest.mark.parametrize("case", golden_cases(), ids=lambda case: case.name)
def test_the_golden_cases_come_out_as_the_webhook_patches_them(case: Path) -> None:
    pod = YAML(typ="safe").load((case / "pod.yaml").read_text())

    found = documents(convert(json.dumps({**pod, "kind": "Pod"})).stdout)

    *templates, expected = documents((case / "expected.yaml").read_text())
    assert found == [*templates, {**expected, "kind": "Pod"}]


OWNED = """\
# owner: platform team
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: demo}   # do not rename
spec:
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api, build: "0123", debug: "yes"}}
    spec:
      containers:
      - name: main
        image: i
        resources:
          limits:
            nvidia.com/gpu: 1        # one slice
            nvidia.com/gpumem: 4000  # MiB
            cpu: "2"                 # keep
---
"""

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: cm, namespace: demo}
data: {mode: "on"}
"""


def test_the_comments_of_a_deployment_survive_with_a_template_in_its_namespace() -> None:
    """S14: what is not ours to change reads as before, and what needs a template comes after it."""
    result = convert(OWNED + CONFIG)

    template, deployment, config = documents(result.stdout)
    assert (template["kind"], template["metadata"]["namespace"]) == (
        "ResourceClaimTemplate",
        "demo",
    )
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels == {"app": "api", "build": "0123", "debug": "yes"}
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "2"}
    assert config["data"] == {"mode": "on"}
    assert result.stdout.endswith(f"---\n{CONFIG}")
    for comment in ("# owner: platform team", "# do not rename", "# keep"):
        assert comment in result.stdout
    assert "status" not in result.stdout
    assert "creationTimestamp" not in result.stdout
    assert (result.exit_code, result.stderr) == (0, "")


FLEET = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: fleet, annotations: {nvidia.com/use-gpuuuid: GPU-aa, other: x}}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: fleet}}
    spec: {containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def test_an_annotation_in_the_wrong_place_is_told() -> None:
    """S15: a choice of cards on a Deployment has no effect, as with HAMi, and that is told."""
    result = convert(FLEET)

    template, deployment = documents(result.stdout)
    assert "selectors" not in json.dumps(template)
    assert "namespace" not in template["metadata"]
    (entry,) = deployment["spec"]["template"]["spec"]["resourceClaims"]
    assert entry["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert result.stderr == (
        "-:1: Deployment/fleet (in spec.template): metadata.annotations[nvidia.com/use-gpuuuid]:"
        " has no effect here, as with HAMi, which reads those of pods; move it to"
        " spec.template.metadata\n"
    )
    assert result.exit_code == 0
