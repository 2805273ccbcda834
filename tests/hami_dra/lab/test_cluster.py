"""A cluster that cannot start says why and leaves nothing; small scripts play the components."""

from pathlib import Path

import pytest

from hami_dra.lab import build
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.failure import ComponentError

# The API server's script also tells its version, which chooses the flags.
_COMPONENT = """\
#!/bin/sh
if [ "$1" = --version ]; then echo Kubernetes v1.37.2; exit; fi
echo started >> "$(dirname "$0")/starts"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Offer a folder of prebuilt components to the lab; each test says how they behave."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv(build.ASSETS_VARIABLE, str(folder))
    return folder


def behave(programs: Path, behaviour: str) -> None:
    for name in build.CONTROL_PLANE:
        path = programs / name
        path.write_text(_COMPONENT + behaviour)
        path.chmod(0o755)


def test_a_component_that_ends_early_is_shown_with_its_log(programs: Path, tmp_path: Path) -> None:
    behave(programs, "echo the disk is full >&2; exit 3\n")

    with pytest.raises(ComponentError, match=r"ended with code 3(.|\n)*the disk is full"):
        Cluster.start(directory=tmp_path / "lab")

    assert not (tmp_path / "lab").exists()


def test_a_taken_port_is_replaced_a_few_times_and_then_shown(
    programs: Path, tmp_path: Path
) -> None:
    """Fresh ports are free; when they are taken every time, something else is wrong."""
    behave(programs, "echo bind: address already in use; exit 1\n")

    with pytest.raises(ComponentError, match="address already in use"):
        Cluster.start(directory=tmp_path / "lab")

    starts = (programs / "starts").read_text().splitlines()
    assert 3 <= len(starts) <= 6
    assert not (tmp_path / "lab").exists()
