"""Without NVIDIA's toolkit containers get the driver's files under every name that they go by."""

import platform
from pathlib import Path

import pytest

from hami_dra.node import cdi
from hami_dra.node.backend import BackendError
from hami_dra.node.driver_files import DriverRoot
from hami_dra.node.prepare import Node, plan
from hami_dra.node.share import card_limits
from tests.hami_dra.node.cdi_validator import edits_for, validate_all
from tests.hami_dra.node.claims import CARDS, DRIVER, NODE, claim, nobody, result

VERSION = CARDS[0].driver_version
DEBIAN = f"usr/lib/{platform.machine()}-linux-gnu"


@pytest.fixture(params=["usr/lib64", DEBIAN])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A driver as its installer leaves it, in the directories of either family."""
    home = tmp_path / str(request.param)
    home.mkdir(parents=True)
    for name in ("libcuda", "libnvidia-ml", "libnvidia-gpucomp", "libnvidia-glcore"):
        (home / f"{name}.so.{VERSION}").touch()
    (home / "libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    (home / "libcuda.so").symlink_to("libcuda.so.1")
    # Absolute, as packages write it: it leads inside of the root, wherever the root is.
    target = f"/{home.relative_to(tmp_path)}/libnvidia-ml.so.{VERSION}"
    (home / "libnvidia-ml.so.1").symlink_to(target)
    (home / "libc.so.6").touch()
    for name in ("dev/nvidiactl", "dev/nvidia-uvm", "usr/bin/nvidia-smi"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    firmware = tmp_path / f"lib/firmware/nvidia/{VERSION}"
    firmware.mkdir(parents=True)
    (firmware / "gsp_ga10x.bin").touch()
    return home


def test_libraries_are_mounted_under_all_their_names_where_loaders_look(
    installed: Path, tmp_path: Path
) -> None:
    edits = DriverRoot(tmp_path, Path("/run/nvidia/driver")).edits(CARDS)

    mounts = {each["containerPath"]: each["hostPath"] for each in edits.common["mounts"]}
    place = f"/run/nvidia/driver/{installed.relative_to(tmp_path)}"
    for directory in ("/usr/lib64", f"/{DEBIAN}"):
        for name in ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}"):
            assert mounts[f"{directory}/{name}"] == f"{place}/libcuda.so.{VERSION}"
        assert mounts[f"{directory}/libnvidia-ml.so.1"] == f"{place}/libnvidia-ml.so.{VERSION}"
    assert mounts["/usr/bin/nvidia-smi"] == "/run/nvidia/driver/usr/bin/nvidia-smi"
    assert f"/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin" in mounts
    assert not any("libc.so" in name or "glcore" in name for name in mounts)


@pytest.mark.usefixtures("installed")
def test_a_card_brings_its_own_device_node_and_all_bring_those_that_exist(tmp_path: Path) -> None:
    edits = DriverRoot(tmp_path, tmp_path).edits(CARDS)

    common = [each["path"] for each in edits.common["deviceNodes"]]
    assert common == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert edits.cards[CARDS[2].uuid] == {"deviceNodes": [{"path": "/dev/nvidia2"}]}


@pytest.mark.usefixtures("installed")
def test_what_comes_out_is_a_cdi_file_that_every_runtime_reads(tmp_path: Path) -> None:
    cards = {card.uuid: card for card in CARDS}
    shares = plan(claim(result(1)), Node(NODE, DRIVER, cards), nobody)
    document = cdi.spec(
        "1-2",
        shares,
        card_limits(shares, cards),
        edits=DriverRoot(tmp_path, tmp_path).edits(CARDS),
        mounts=(),
    )
    folder = tmp_path / "cdi"
    folder.mkdir()
    (folder / cdi.file_name("1-2")).write_bytes(cdi.render(document))

    seen = edits_for(validate_all(folder), (cdi.device_id("1-2", shares[0]),))
    assert "/dev/nvidia1" in seen["nodes"]
    assert len(seen["mounts"]) == len(document["containerEdits"]["mounts"]), "each place once"


def test_what_is_no_driver_is_told_with_what_to_do(tmp_path: Path) -> None:
    root = DriverRoot(tmp_path, tmp_path)
    with pytest.raises(BackendError, match=r"found no libcuda.so.1.*--driver-root"):
        root.edits(CARDS)

    # A directory of that name must not pass for the library.
    (tmp_path / "usr/lib64/libcuda.so.1").mkdir(parents=True)
    with pytest.raises(BackendError, match=r"found no libcuda.so.1"):
        root.edits(CARDS)


def test_a_driver_that_was_updated_under_the_kernels_feet_is_told(tmp_path: Path) -> None:
    home = tmp_path / "usr/lib64"
    home.mkdir(parents=True)
    (home / "libcuda.so.999.1").touch()
    (home / "libcuda.so.1").symlink_to("libcuda.so.999.1")

    with pytest.raises(BackendError, match="restart the node"):
        DriverRoot(tmp_path, tmp_path).edits(CARDS)


def test_device_nodes_are_the_hosts_wherever_the_drivers_root_is(
    installed: Path, tmp_path: Path
) -> None:
    """As on systems that keep the driver in a directory of its own, without a /dev in it."""
    devices = tmp_path / "host-dev"
    (tmp_path / "dev").rename(devices)

    edits = DriverRoot(tmp_path, tmp_path, devices).edits(CARDS)

    assert installed.exists()
    common = [each["path"] for each in edits.common["deviceNodes"]]
    assert common == ["/dev/nvidiactl", "/dev/nvidia-uvm"]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["nvidiactl", "nvidia-uvm"])
def test_a_module_that_is_not_loaded_yet_is_told(tmp_path: Path, name: str) -> None:
    """Nobody could compute, and no container can load it."""
    (tmp_path / "dev" / name).unlink()

    with pytest.raises(BackendError, match=f"found no device node {name}.*nvidia-modprobe"):
        DriverRoot(tmp_path, tmp_path, tmp_path / "none").edits(CARDS)


def test_files_that_vanish_while_they_are_looked_at_are_told(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vanished(path: Path) -> Path:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "readlink", vanished)

    with pytest.raises(BackendError, match="cannot be read"):
        DriverRoot(tmp_path, tmp_path).edits(CARDS)
    assert installed.exists()
