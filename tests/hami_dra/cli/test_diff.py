"""`hami-dra diff`: kubectl's exit codes, a unified diff, another program's where one is named."""

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from tests.hami_dra.cli.test_files import PLAIN, POD


def diff(text: str, *arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["diff", "-f", "-", *arguments], input=text, env=env)


def test_the_diff_shows_the_lines_that_change() -> None:
    result = diff(POD.format(name="x"))

    assert result.exit_code == 1
    assert result.stdout.startswith("--- a/-\n+++ b/-\n@@ ")
    assert "-      limits:\n-        nvidia.com/gpu: 1 # one\n" in result.stdout
    assert "+      claims:\n+      - name: gpu-main\n" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_diff_is_a_patch(tmp_path: Path) -> None:
    """What it prints turns the file into what convert prints."""
    file = tmp_path / "pod.yaml"
    file.write_text(POD.format(name="x").rstrip("\n"))
    git = shutil.which("git")
    assert git, "git is how this repository is developed"
    shown = CliRunner().invoke(app, ["diff", "-f", str(file)]).stdout
    converted = CliRunner().invoke(app, ["convert", "-f", str(file)]).stdout

    subprocess.run(
        [git, "apply", "-p1", "--directory=", "-"], input=shown.encode(), cwd="/", check=True
    )

    assert file.read_text() == converted


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (PLAIN, 0),
        (POD.format(name="x"), 1),
        (POD.format(name="x").replace("gpu: 1", "gpu: -1"), 3),
        ("nvidia.com/gpu: [", 2),
    ],
)
def test_exit_codes_are_kubectls(text: str, code: int) -> None:
    assert diff(text).exit_code == code


def test_another_program_shows_the_difference(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """KUBECTL_EXTERNAL_DIFF gets two directories, as from kubectl, and its trouble is ours."""
    program = tmp_path / "show"
    program.write_text('#!/bin/sh\necho "$@"\nexit "$1"\n')
    program.chmod(0o755)
    text = POD.format(name="x")

    shown, trouble, missing = (
        diff(text, env={"KUBECTL_EXTERNAL_DIFF": command})
        for command in (f"{program} 1", f"{program} 4", "no-such-program")
    )

    assert capfd.readouterr().out == "1 LEGACY CONVERTED\n4 LEGACY CONVERTED\n"
    assert [ran.exit_code for ran in (shown, trouble, missing)] == [1, 4, 2]
    assert "no-such-program: No such file" in missing.stderr
