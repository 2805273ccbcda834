"""`python -m hami_dra.lab` says what is wrong in a message, not in a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def lab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hami_dra.lab", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "variable", "message"),
    [
        (["stop", "{folder}"], "UNUSED", "found no process id"),
        (["up"], "KUBEBUILDER_ASSETS", "found no program etcd"),
        (["build"], "HAMI_DRA_CLUSTER_SOURCE", "found no main.go"),
    ],
)
def test_trouble_is_a_message_and_exit_code_1(
    tmp_path: Path, arguments: list[str], variable: str, message: str
) -> None:
    filled = [argument.format(folder=tmp_path) for argument in arguments]

    done = lab(*filled, **{variable: str(tmp_path)})

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lab: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_version_names_the_known_ones() -> None:
    done = lab("build", "--version", "1.2", KUBEBUILDER_ASSETS="")

    assert done.returncode == 1
    assert "found 1.37.2, " in done.stderr
