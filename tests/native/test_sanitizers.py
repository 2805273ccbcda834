"""The library and the fake driver under the compiler's sanitizers, as far as the compiler has them."""

import functools
import shlex
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hami_dra.node import limit_files
from hami_dra.node.limits import CONTROL_BYTES, USAGE_BYTES, Control, DeviceLimit
from tests.native.conftest import NATIVE, UUIDS, compiler, make

_SANITIZERS: Final = {
    "address": "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
    "thread": "-fsanitize=thread",
    "traps": "-fsanitize=undefined -fsanitize-trap=undefined",
}
_TRAPS: Final = "traps"
"""Needs no runtime: what also zig has for shared libraries."""
_CLAIM: Final = Path("claims", "one")


def _links(flags: str, directory: str) -> bool:
    text = Path(directory, "empty.c")
    text.write_text("int main(void) { return 0; }\n")
    command = [*compiler(), *shlex.split(flags), "-o", f"{directory}/empty", str(text)]
    return not subprocess.run(command, capture_output=True, check=False, timeout=120).returncode


@functools.cache
def _available() -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as directory:
        found = tuple(
            name
            for name, flags in _SANITIZERS.items()
            if name != _TRAPS and "ziglang" not in compiler() and _links(flags, directory)
        )
    return found or (_TRAPS,)


@functools.cache
def _built(name: str) -> Path:
    """Return the folder of what `make sanitized` made."""
    build = NATIVE / "build" / name
    link = "-shared -pthread -ldl -Wl,-soname,libvgpu.so -Wl,--version-script=$(BUILD)/exports.map"
    flags = f"SANITIZE={_SANITIZERS[name]}"
    make(f"BUILD={build}", flags, f"CC={' '.join(compiler())}", f"LINK={link}", "sanitized")
    return build


def _run(program: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    ran = subprocess.run(
        [program, *arguments],
        env={"LIBCUDA_LOG_LEVEL": "0", "VGPU_FAKE_DEVICES": "2", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    # Errors are told at every level; they begin with the library's name.
    said = [line for line in ran.stderr.splitlines() if not line.startswith("vgpu[")]
    return ran.returncode, ran.stdout, "\n".join(said)


def _claim(directory: Path) -> Path:
    claim = directory / _CLAIM
    claim.mkdir(parents=True)
    limits = tuple(DeviceLimit(uuid, 100 << 20, core_percent=90) for uuid in UUIDS)
    limit_files.create(claim, Control(limits))
    return claim


@pytest.mark.parametrize("name", _available())
def test_threads_on_two_cards_show_nothing_to_a_sanitizer(name: str, tmp_path: Path) -> None:
    _claim(tmp_path)

    ran = _run(_built(name) / "threads", VGPU_CLAIMS_DIRECTORY=str(tmp_path / "claims"))

    assert ran == (0, "0\n", "")


_NUMBERS: Final = st.one_of(
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]),
    st.integers(min_value=0, max_value=2**64 - 1),
)


def _patches(size: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Numbers in the header, in the first records, and anywhere."""
    offsets = st.one_of(
        st.integers(min_value=0, max_value=31),
        st.integers(min_value=0, max_value=127),
        st.integers(min_value=0, max_value=size // 8 - 1),
    )
    return st.lists(st.tuples(offsets.map(lambda word: 8 * word), _NUMBERS), max_size=8)


def _patch(path: Path, patches: list[tuple[int, int]]) -> None:
    with path.open("r+b") as file:
        for offset, number in patches:
            file.seek(offset)
            file.write(struct.pack("<Q", number))


@pytest.mark.parametrize("name", _available()[:1])
@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    cases=st.lists(
        st.tuples(_patches(CONTROL_BYTES), _patches(USAGE_BYTES)), min_size=1, max_size=10
    )
)
def test_files_that_hold_anything_end_no_process(
    name: str, cases: list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]
) -> None:
    """Before the start and while it runs: a damaged usage file is a container's own doing.

    A failure is not made smaller, because waits on damaged locks would take minutes.
    """
    with tempfile.TemporaryDirectory() as directory:
        folders = [Path(directory, str(number)) for number in range(len(cases))]
        for folder, (control, usage) in zip(folders, cases, strict=True):
            claim = _claim(folder)
            _patch(claim / "control", control)
            _patch(claim / "usage", usage[::2])
            damage = b"".join(struct.pack("<QQ", *patch) for patch in usage)
            (folder / "damage").write_bytes(damage)

        ran = _run(_built(name) / "files", *map(str, folders))

    assert ran == (0, "0\n", "")
