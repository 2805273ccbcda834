"""Every version of the library keeps its place for as long as somebody has it."""

from pathlib import Path

import pytest

from hami_dra.node.allocation import PrepareError
from hami_dra.node.backend import BackendError, NoCards, SimulatedCards, real_cards
from hami_dra.node.files import Files
from hami_dra.node.library import IN_CONTAINER, PRELOAD, Library
from hami_dra.node.node_state import NodeState


@pytest.fixture
def library(tmp_path: Path) -> Library:
    (tmp_path / "libvgpu.so").write_bytes(b"first")
    made = Library(tmp_path / "libvgpu.so", tmp_path / "lib", Files())
    made.install()
    return made


def test_a_container_gets_the_library_and_the_loaders_list(library: Library) -> None:
    binary, listed = library.mounts(library.digest)

    assert binary.container == IN_CONTAINER
    assert Path(binary.host).read_bytes() == b"first"
    assert "noexec" not in binary.as_json()["options"]
    assert listed.container == PRELOAD
    assert Path(listed.host).read_text() == f"{IN_CONTAINER}\n"
    assert "ro" in listed.as_json()["options"]


def test_a_new_version_leaves_the_old_one_to_those_who_have_it(
    library: Library, tmp_path: Path
) -> None:
    old = library.digest
    before = Path(library.mounts(old)[0].host).stat()
    (tmp_path / "libvgpu.so").write_bytes(b"second")
    library.install()

    assert library.digest != old
    assert library.remove_unused({old}) == ()
    after = Path(library.mounts(old)[0].host).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    assert library.remove_unused(set()) == (old,)
    with pytest.raises(PrepareError, match="not on the node any more"):
        library.mounts(old)


def test_the_current_version_comes_back_when_another_agent_removed_it(library: Library) -> None:
    Files().remove_tree(Path(library.mounts(library.digest)[0].host).parent)

    assert Path(library.mounts(library.digest)[0].host).read_bytes() == b"first"


@pytest.mark.parametrize("name", ["libvgpu.so", "ld.so.preload"])
@pytest.mark.parametrize("left", [b"", b"fi"])
def test_a_version_that_a_power_cut_damaged_is_written_anew(
    library: Library, tmp_path: Path, name: str, left: bytes
) -> None:
    """The loader passes over what it cannot load, and the container would have no limits."""
    path = tmp_path / "lib" / library.digest / name
    whole = path.read_bytes()
    path.write_bytes(left)

    Library(tmp_path / "libvgpu.so", tmp_path / "lib", Files()).install()

    assert path.read_bytes() == whole


def test_a_version_that_cannot_be_written_is_known_and_refused(tmp_path: Path) -> None:
    """No claim may be prepared without it, as it could be if no version were known."""
    (tmp_path / "libvgpu.so").write_bytes(b"first")
    is_full = [True]

    def step(_: str) -> None:
        if is_full[0]:
            raise OSError(28, "No space left on device")

    library = Library(tmp_path / "libvgpu.so", tmp_path / "lib", Files(step))
    with pytest.raises(OSError, match="No space"):
        library.install()

    assert library.digest
    with pytest.raises(OSError, match="No space"):
        library.mounts(library.digest)
    is_full[0] = False
    assert Path(library.mounts(library.digest)[0].host).read_bytes() == b"first"


def test_what_is_no_version_is_left_alone(library: Library, tmp_path: Path) -> None:
    (tmp_path / "lib" / "notes").mkdir()

    assert library.remove_unused(set()) == ()


def test_an_agent_without_the_library_refuses_a_claim_that_has_it() -> None:
    state = NodeState(NoCards(), name="n", driver="d", split_count=10)

    assert state.library_mounts("") == ()
    with pytest.raises(PrepareError, match="start it with --library"):
        state.library_mounts("0" * 64)


def test_simulated_cards_are_refused_where_real_ones_exist(tmp_path: Path) -> None:
    assert real_cards(tmp_path) is None
    assert len(SimulatedCards("l4-24g", 2, "n", root=tmp_path).cards()) == 2
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()

    with pytest.raises(BackendError, match="real NVIDIA cards"):
        SimulatedCards("l4-24g", 2, "n", root=tmp_path)


def test_an_unknown_model_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="expected one of: a100-80g"):
        SimulatedCards("voodoo", 1, "n", root=tmp_path)
