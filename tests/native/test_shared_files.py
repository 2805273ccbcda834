"""The files that agent and processes share: whatever is in them and wherever they lie, the limit holds."""

import os
import shlex
import sys
from pathlib import Path
from typing import Final

import pytest

from hami_dra.node.limits import (
    USAGE_BYTES,
    DeviceLimit,
)
from tests.native.conftest import UUIDS, Container
from tests.native.namespaces import unshare


def _damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        os.truncate(path, 4096)
    elif how == "empty":
        os.truncate(path, 0)
    elif how == "a directory":
        path.unlink()
        path.mkdir()
    elif how == "a link":
        path.rename(path.with_name("other"))
        path.symlink_to("other")
    elif how == "a newer version":
        path.write_bytes(b"VGPUSAGE\x02\0\0\0\1\0\0\0".ljust(USAGE_BYTES, b"\0"))
    elif how == "noise":
        path.write_bytes(os.urandom(USAGE_BYTES))
    else:
        size = USAGE_BYTES.to_bytes(8, "little")
        path.write_bytes((b"VGPUSAGE\1\0\0\0\1\0\0\0" + size).ljust(USAGE_BYTES, b"\xff"))


@pytest.mark.foreign
@pytest.mark.parametrize(
    "how",
    ["missing", "truncated", "empty", "a directory", "a link", "a newer version", "noise", "ones"],
)
def test_a_damaged_usage_file_is_said_and_the_limit_still_holds(
    container: Container, how: str
) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    _damage(path / "usage", how)

    told = container.run("""
        cuda = Cuda()
        first = cuda.alloc(600 * MIB)
        second = cuda.alloc(600 * MIB)
        tell([first[0], second[0], cuda.free(first[1]), cuda.used()])
    """)

    assert told == [0, 2, 0, 0]
    lines = [line for line in container.said.splitlines() if "refused" not in line]
    assert len(lines) == 1
    assert "this process alone" in lines[0]


def test_books_get_memory_from_the_first_process_that_computes(limited: Container) -> None:
    usage = limited.claims / "one" / "usage"
    before = usage.stat()

    assert limited.run("tell(Cuda().alloc(600 * MIB)[0])") == 0

    assert before.st_size == usage.stat().st_size == USAGE_BYTES
    assert before.st_blocks == 0, "nobody pays for the books of a container that does not compute"
    assert usage.stat().st_blocks * 512 >= USAGE_BYTES


def test_books_that_find_no_memory_end_nobody(limited: Container) -> None:
    """To touch what has no memory behind it would end the program with SIGBUS."""
    full = limited.directory / "full"
    full.mkdir()
    script = f"""
        mount -t tmpfs -o size=256k none {full} && mkdir -p {full}/claims/one &&
        cd {limited.claims}/one && cp --sparse=always control usage {full}/claims/one &&
        dd if=/dev/zero of={full}/rest status=none
        test -s {full}/rest && exec {sys.executable} -S -c 'from tests.native.cuda import *
cuda = Cuda()
tell([cuda.alloc(600 * MIB)[0], cuda.alloc(600 * MIB)[0]])'
    """
    shell = [*unshare("--mount"), "sh", "-c", script]

    told = limited.run(shell, VGPU_CLAIMS_DIRECTORY=str(full / "claims"))

    assert told == [0, 2]
    assert "this process alone" in limited.said


@pytest.mark.parametrize("content", [b"\0", b"\xff", b"\x10"], ids=["zeros", "ones", "sixteens"])
def test_a_usage_file_that_is_overwritten_later_ends_nobody(
    container: Container, content: bytes
) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20)) / "usage"
    process = container.start("""
        cuda = Cuda()
        first = cuda.alloc(600 * MIB)
        tell(first[0])
        sys.stdin.readline()
        results = [cuda.alloc(600 * MIB)[0], cuda.free(first[1])]
        results.append(cuda.alloc(2000 * MIB)[0])
        tell(results)
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    with path.open("r+b") as usage:
        usage.seek(64)
        usage.write(content * (USAGE_BYTES - 64))

    told, said = process.communicate("\n", timeout=120)

    assert process.returncode == 0, said
    assert told.strip().endswith("0, 2]")


def test_a_lock_that_is_overwritten_later_leaves_what_is_held(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20)) / "usage"
    process = container.start("""
        cuda = Cuda()
        first = cuda.alloc(600 * MIB)
        tell(first[0])
        sys.stdin.readline()
        tell([cuda.alloc(600 * MIB)[0], cuda.used() >> 20, cuda.free(first[1]), cuda.used()])
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    with path.open("r+b") as usage:
        usage.seek(128)
        usage.write(b"\xff" * 48)

    told, said = process.communicate("\n", timeout=120)

    assert told == "[2, 600, 0, 0]\n", said
    assert "this process alone" in said


@pytest.mark.parametrize("content", [b"", b"VGPUCTRL\x02\0\0\0", b"x" * 79936])
def test_a_damaged_control_file_grants_what_the_environment_says(
    container: Container, content: bytes
) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    (path / "control").write_bytes(content)

    closed = container.run("tell(Cuda().alloc(MIB)[0])")
    fallback = container.run(
        """
        cuda = Cuda()
        tell([cuda.alloc(60 * MIB)[0], cuda.alloc(60 * MIB)[0]])
    """,
        CUDA_DEVICE_MEMORY_LIMIT="100m",
    )

    assert (closed, fallback) == (2, [0, 2])


def test_an_update_that_the_agent_did_not_finish_changes_nothing(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    with (path / "control").open("r+b") as control:
        control.seek(16)
        control.write((7).to_bytes(8, "little"))

    told = container.run(
        "cuda = Cuda(); tell([cuda.alloc(600 * MIB)[0], cuda.alloc(600 * MIB)[0]])"
    )

    assert told == [0, 2]


_TWICE: Final = """
    cuda = Cuda()
    first = cuda.alloc(600 * MIB)
    tell([first[0], cuda.alloc(600 * MIB)[0], cuda.free(first[1]), cuda.used()])
"""


def _alone(container: Container) -> list[str]:
    return [line for line in container.said.splitlines() if "this process alone" in line]


def test_a_usage_file_that_cannot_be_written_leaves_the_limit(limited: Container) -> None:
    path = limited.claims / "one" / "usage"
    bind = f"mount --bind {path} {path} && mount -o remount,ro,bind {path}"
    command = shlex.join(limited.python(_TWICE))

    told = limited.run([*unshare("--mount"), "sh", "-c", f"{bind} && exec {command}"])

    assert told == [0, 2, 0, 0]
    assert len(_alone(limited)) == 1


def test_a_full_disk_leaves_the_limit(container: Container) -> None:
    """The first process makes the shared file, and there is room for a tenth of it."""
    disk = container.directory / "disk"
    disk.mkdir()
    command = shlex.join(container.python(_TWICE))
    fill = f"mount -t tmpfs -o size=80k none {disk}"

    told = container.run(
        [*unshare("--mount"), "sh", "-c", f"{fill} && exec {command}"],
        CUDA_DEVICE_MEMORY_LIMIT="1000m",
        CUDA_DEVICE_MEMORY_SHARED_CACHE=str(disk / "cache"),
    )

    assert told == [0, 2, 0, 0]
    assert len(_alone(container)) == 1
