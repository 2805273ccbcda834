"""Tools are those beside Python, or else those on PATH."""

from pathlib import Path

import pytest

from hami_dra.lab import toolchain
from hami_dra.lab.failure import LabError


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.touch(mode=0o755)
    return path


def test_the_environment_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = program(tmp_path / "environment", "tool")
    monkeypatch.setenv("PATH", str(program(tmp_path / "path", "tool").parent))

    assert toolchain.find("tool", environment=beside.parent) == beside


def test_path_is_the_second_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(tmp_path / "path", "tool")
    monkeypatch.setenv("PATH", str(on_path.parent))

    assert toolchain.find("tool", environment=tmp_path) == on_path


def test_a_missing_tool_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"no-such-tool: found neither in .* `make dev`"):
        toolchain.find("no-such-tool", environment=tmp_path)
