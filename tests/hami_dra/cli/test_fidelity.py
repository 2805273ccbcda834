"""Golden folders: what a conversion makes of files in every layout, and a revert of that.

`pytest --update` writes `expected`, `notices.txt` and `reverted.txt`; read them before you commit.
"""

import difflib
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.cli.documents import split
from hami_dra.cli.workloads import things
from hami_dra.yaml_edit.same import same

CASES = sorted((Path(__file__).parents[2] / "cli_cases").iterdir())


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def tree(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.iterdir())}


def converted(case: Path, out: Path) -> Result:
    return run("convert", "-f", case / "in", "--output-dir", out, "--kube-version", "1.37")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_files_become_what_the_golden_folder_says(
    case: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    result = converted(case, tmp_path)

    notices = result.stderr.replace(f"{case}/", "")
    if request.config.getoption("--update"):
        shutil.rmtree(case / "expected", ignore_errors=True)
        shutil.copytree(tmp_path, case / "expected")
        (case / "notices.txt").write_text(notices)
    assert tree(tmp_path) == tree(case / "expected")
    assert notices == (case / "notices.txt").read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_second_conversion_changes_nothing(case: Path, tmp_path: Path) -> None:
    converted(case, tmp_path / "once")

    run("convert", "-f", tmp_path / "once", "--output-dir", tmp_path / "twice")

    assert tree(tmp_path / "twice") == tree(tmp_path / "once")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_revert_says_what_the_original_said(
    case: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What the record cannot hold is the only difference, and `reverted.txt` shows it."""
    converted(case, tmp_path / "there")
    run("revert", "-f", tmp_path / "there", "--output-dir", tmp_path / "back")

    original, back = tree(case / "in"), tree(tmp_path / "back")
    assert original.keys() == back.keys()
    lost = "".join(_difference(name, original[name], back[name]) for name in original)
    if request.config.getoption("--update"):
        (case / "reverted.txt").write_text(lost)
    assert lost == (case / "reverted.txt").read_text()


def _difference(name: str, before: bytes, after: bytes) -> str:
    old, new = before.decode().splitlines(), after.decode().splitlines()
    diff = difflib.unified_diff(old, new, f"in/{name}", f"back/{name}", lineterm="", n=0)
    return "".join(f"{line}\n" for line in diff)


WITHOUT_NAMES = {"custom-resources", "separators", "json-in-yaml"}


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.name not in WITHOUT_NAMES], ids=lambda case: case.name
)
def test_kubectl_reads_from_the_result_what_we_do(case: Path) -> None:
    """No object is lost, and each means the same; kinds and names are needed for that."""
    for file in sorted((case / "expected").iterdir()):
        text = file.read_text()
        if "ResourceClaimTemplate" not in text:
            continue
        ran = subprocess.run(
            [kubectl(), "annotate", "--local", "-f", str(file), "-o", "json", "a=b"],
            capture_output=True,
            check=True,
        )
        theirs = [document.parsed().value for document in split("kubectl", ran.stdout.decode())]
        ours = [document.parsed().value for document in split(file.name, text)]
        flat = [thing.content for value in ours if value for thing in things(value)]
        for each in theirs:
            del each["metadata"]["annotations"]["a"]
            each["metadata"] = {k: v for k, v in each["metadata"].items() if v}
        assert [same(a, b) for a, b in zip(theirs, flat, strict=True)] == [True] * len(flat)


def kubectl() -> str:
    found = shutil.which("kubectl")
    assert found, "kubectl comes with the requirements of the tests"
    return found
