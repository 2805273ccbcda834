"""Kustomizations: half of what a pod asks for can stand in a patch, in a file of its own or not."""

from pathlib import Path

import pytest

from tests.hami_dra.cli.test_files import POD, run

BASE = POD.format(name="p")
STRATEGIC = """\
kind: Pod
apiVersion: v1
metadata: {name: p}
spec:
  containers:
  - {name: main, resources: {limits: {nvidia.com/gpumem: 8000}}}
"""
OPERATIONS = """\
- op: add
  path: /spec/containers/0/resources/limits/nvidia.com~1gpumem
  value: 8000
"""
WHOLE = """\
- op: replace
  path: /spec/containers/0/resources/limits
  value: {nvidia.com/gpumem: 8000, nvidia.com/gpu: 2}
"""
HARMLESS = "- {op: replace, path: /spec/containers/0/image, value: j}\n"


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def overlay(root: Path, patches: str) -> Path:
    """Write a base and an overlay; return the overlay."""
    (root / "base").mkdir()
    (root / "base" / "pod.yaml").write_text(BASE)
    (root / "base" / "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    (root / "overlay" / "below").mkdir(parents=True)
    (root / "overlay" / "kustomization.yaml").write_text(f"resources: [../base]\n{patches}")
    return root / "overlay"


INLINE = [
    f"patches:\n- patch: |-\n{indented(STRATEGIC)}",
    f"patches:\n- target: {{kind: Pod}}\n  patch: |-\n{indented(OPERATIONS)}",
    f"kind: Kustomization\npatchesStrategicMerge:\n- |-\n{indented(STRATEGIC)}",
    f"patchesJson6902:\n- target: {{kind: Pod}}\n  patch: |-\n{indented(WHOLE)}",
]


@pytest.mark.parametrize("patches", INLINE)
def test_a_patch_within_a_kustomization_is_told(patches: str, tmp_path: Path) -> None:
    file = overlay(tmp_path, patches) / "kustomization.yaml"
    before = file.read_bytes()

    ran = run("convert", "-R", "-f", tmp_path, "--in-place")

    said = f"{file}:1: patch: not converted: patches nvidia.com/gpumem in another manifest; convert"
    assert (ran.returncode, ran.stderr.decode().startswith(said)) == (3, True)
    assert file.read_bytes() == before


FILES = [
    ("patches: [{path: p.yaml}]", "p.yaml", STRATEGIC, "Pod/p: not converted: a kustomization"),
    ("patchesStrategicMerge: [below/p.yaml]", "below/p.yaml", STRATEGIC, "Pod/p: not converted: a"),
    ("patches: [{path: p.yaml, target: {kind: Pod}}]", "p.yaml", OPERATIONS, "patch: not convert"),
    ("patches: [{path: p.json, target: {kind: Pod}}]", "p.json", OPERATIONS, "patch: not convert"),
    ("patchesJson6902: [{path: p.yaml, target: {kind: Pod}}]", "p.yaml", WHOLE, "patch: not conve"),
]


@pytest.mark.parametrize(("patches", "name", "text", "said"), FILES)
def test_a_patch_in_a_file_is_told(
    patches: str, name: str, text: str, said: str, tmp_path: Path
) -> None:
    """It is passed through: converted by itself, two cards of the base could become one."""
    file = overlay(tmp_path, patches) / name
    file.write_text(text)

    converted, different = (run(each, "-R", "-f", tmp_path) for each in ("convert", "diff"))

    assert (converted.returncode, different.returncode) == (3, 3)
    assert f"{file}:1: {said}" in converted.stderr.decode()
    assert converted.stderr.decode().startswith(different.stderr.decode())
    assert text in converted.stdout.decode()
    assert text not in different.stdout.decode()


def test_what_kustomize_builds_is_converted_as_one(tmp_path: Path) -> None:
    ran = run("convert", "-k", overlay(tmp_path, INLINE[0]))

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "memory: 8000Mi" in ran.stdout.decode()


@pytest.mark.parametrize(
    "patches",
    [
        f"patches:\n- target: {{kind: Pod}}\n  patch: |-\n{indented(HARMLESS)}",
        "patches: [{path: p.yaml, target: {kind: Pod}}]\n# nvidia.com~1gpu\n",
        "patches: [{path: none.yaml}, {}, 5]\n",
        "patches: {nvidia.com: gpu}\n",
    ],
)
def test_other_patches_pass_without_a_word(patches: str, tmp_path: Path) -> None:
    (overlay(tmp_path, patches) / "p.yaml").write_text(HARMLESS)

    ran = run("convert", "-R", "-f", tmp_path)

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert "count: 1" in ran.stdout.decode()
