"""Programs of Debian without installing them."""

import subprocess
from pathlib import Path

import pytest

from hami_dra.lab import debian
from hami_dra.lab.failure import LabError


def test_a_program_runs_with_its_own_libraries(tmp_path: Path) -> None:
    debian.unpack(["hello"], tmp_path)
    [root] = tmp_path.iterdir()

    said = subprocess.run(debian.command(root, "usr/bin/hello"), capture_output=True, check=True)

    assert said.stdout == b"Hello, world!\n"


def test_what_debian_lacks_is_said(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="Unable to locate package no-such-package"):
        debian.unpack(["no-such-package"], tmp_path)


def test_a_host_without_apt_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(LabError, match="install by hand: runc"):
        debian.unpack(["runc"], tmp_path)
