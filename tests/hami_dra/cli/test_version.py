"""Versions in kubectl's form, and the plugin that kubectl finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hami_dra import __version__
from hami_dra.cli.app import app
from tests.hami_dra.cli.test_prune import Cluster

PROGRAMS = Path(sys.executable).parent


def test_without_a_cluster_the_client_alone_is_shown() -> None:
    result = CliRunner().invoke(app, ["version"])

    assert result.stdout == f"Client Version: {__version__}\n"


def test_a_named_cluster_tells_its_own(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        answer = {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
        cluster.double.fail("GET /version", 200, answer)
        cluster.double.fail("GET /version", 200, answer)
        arguments = ["version", "--kubeconfig", str(cluster.kubeconfig)]

        text = CliRunner().invoke(app, arguments).stdout
        as_json = CliRunner().invoke(app, [*arguments, "-o", "json"]).stdout

    assert text == f"Client Version: {__version__}\nServer Version: v1.37.2\n"
    assert json.loads(as_json) == {"clientVersion": __version__, "serverVersion": "v1.37.2"}


@pytest.mark.parametrize("command", ["version", "preflight", "prune"])
def test_a_cluster_that_is_not_there_ends_the_command(tmp_path: Path, command: str) -> None:
    file = tmp_path / "none"

    result = CliRunner().invoke(app, [command, "--kubeconfig", str(file)])

    assert result.exit_code == 1
    assert f"no kubeconfig at {file}" in result.stderr


def test_kubectl_finds_the_plugin_and_help_says_how_it_was_called() -> None:
    environment = {**os.environ, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"}

    def kubectl(*arguments: str) -> str:
        call = [str(PROGRAMS / "kubectl"), *arguments]
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert kubectl("hami-dra", "version") == f"Client Version: {__version__}\n"
    assert kubectl("hami-dra", "--help").startswith("Usage: kubectl hami-dra ")
