"""Helm is built once for each change of its inputs; a small script plays the compiler."""

from pathlib import Path

import pytest

from hami_dra.lab import toolchain
from hami_dra.lab.failure import LabError
from tests.tools import helm

# Writes what it was called with to its output; appends a line to the file `builds` beside it.
_COMPILER = """\
#!/bin/sh
if [ "$1" = env ]; then echo go1.26.6 linux amd64; exit; fi
echo built >> "$(dirname "$0")/builds"
for argument; do last=$argument; done
until [ "$1" = -o ]; do shift; done
echo "$last" > "$2"
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    go = tmp_path / "go"
    go.write_text(_COMPILER)
    go.chmod(0o755)
    monkeypatch.setattr(toolchain, "find", lambda _tool: go)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return go


def test_helm_is_built_once(compiler: Path) -> None:
    binary = helm.binary()

    assert helm.binary() == binary
    assert binary.read_text() == "helm.sh/helm/v4/cmd/helm\n"
    assert compiler.with_name("builds").read_text() == "built\n"


def test_another_compiler_builds_another_helm(compiler: Path) -> None:
    before = helm.binary()
    compiler.write_text(_COMPILER.replace("1.26.6", "1.26.7"))

    assert helm.binary() != before


def test_what_the_compiler_says_is_shown(compiler: Path) -> None:
    compiler.write_text(_COMPILER.replace("echo built", "echo no such module >&2; exit 3; echo"))

    with pytest.raises(LabError, match=r"exit code 3(.|\n)*no such module"):
        helm.binary()
