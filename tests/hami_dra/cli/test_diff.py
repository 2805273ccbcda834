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


TEXT = POD.format(name="x")
CRLF = TEXT.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pod.yaml", TEXT.rstrip("\n")),
        ("pod.yaml", CRLF),
        ("pod.yaml", CRLF.rstrip("\r\n")),
        ("pod.yaml", TEXT.replace("image: i", "image: 'i\u2028i\u2029\x85'")),
        ("pod.yaml", TEXT.replace("# one", "# one\r# two")),
        ("./pod.yaml", TEXT),
        ("below/../pod.yaml", TEXT),
        ("a pod.yaml", TEXT),
        ("pöd.yaml", TEXT),
    ],
)
@pytest.mark.parametrize("program", [("git", "apply"), ("patch", "-p1", "--binary")])
def test_a_diff_is_a_patch(
    program: tuple[str, ...], name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it prints turns the file into what convert prints, byte by byte."""
    found = shutil.which(program[0])
    assert found, "git and patch are on every machine that develops"
    monkeypatch.chdir(tmp_path)
    Path("below").mkdir()
    file = Path(name)
    file.write_bytes(text.encode())
    shown = CliRunner().invoke(app, ["diff", "-f", name]).stdout_bytes
    converted = CliRunner().invoke(app, ["convert", "-f", name]).stdout_bytes

    subprocess.run([found, *program[1:]], input=shown, check=True)

    assert file.read_bytes() == converted


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

    shown, trouble, missing, unclosed = (
        diff(TEXT, env={"KUBECTL_EXTERNAL_DIFF": command})
        for command in (f"{program} 1", f"{program} 4", "no-such-program", "show 'it")
    )

    assert capfd.readouterr().out == "1 LEGACY CONVERTED\n4 LEGACY CONVERTED\n"
    assert [ran.exit_code for ran in (shown, trouble, missing, unclosed)] == [1, 4, 2, 2]
    assert "no-such-program: No such file" in missing.stderr
    assert 'found "show \'it", expected a command: No closing quotation' in unclosed.stderr


@pytest.mark.parametrize("name", ["..", ".", "../below"])
def test_another_program_sees_a_kustomization_by_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    Path(name, "kustomization.yaml").write_text("resources: [pod.yaml]\n")
    Path(name, "pod.yaml").write_text(TEXT)

    ran = CliRunner().invoke(
        app, ["diff", "-k", name], env={"KUBECTL_EXTERNAL_DIFF": "diff -r"}, catch_exceptions=False
    )

    assert ran.exit_code == 1
    assert "claims:" in capfd.readouterr().out
