"""Behaviour of the files of a claim on disk."""

import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from hami_dra.node import limit_files
from hami_dra.node.limits import (
    CONTROL_BYTES,
    USAGE_BYTES,
    Control,
    DamagedFileError,
    DeviceLimit,
    DriverUsage,
    decode_control,
)

_LIMITS = Control((DeviceLimit("GPU-a", 1 << 30, core_percent=30),))


def _read(directory: Path) -> Control:
    return decode_control((directory / "control").read_bytes())


def test_a_claim_gets_a_control_that_only_its_owner_writes_and_an_empty_usage(
    tmp_path: Path,
) -> None:
    limit_files.create(tmp_path, _LIMITS)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["control", "usage"]
    assert stat.S_IMODE((tmp_path / "control").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "usage").stat().st_mode) == 0o666
    assert (tmp_path / "usage").read_bytes() == bytes(USAGE_BYTES)
    assert _read(tmp_path) == _LIMITS


def test_making_a_claim_again_keeps_what_its_processes_wrote(tmp_path: Path) -> None:
    limit_files.create(tmp_path, _LIMITS)
    with (tmp_path / "usage").open("r+b") as usage:
        usage.write(b"VGPUSAGE")

    limit_files.create(tmp_path, _LIMITS)

    assert (tmp_path / "usage").read_bytes()[:8] == b"VGPUSAGE"


def test_a_resize_reaches_those_who_have_the_file_open(tmp_path: Path) -> None:
    limit_files.create(tmp_path, _LIMITS)
    larger = Control((replace(_LIMITS.devices[0], memory_bytes=2 << 30),))

    with (tmp_path / "control").open("rb") as mounted:
        written = limit_files.update(tmp_path / "control", larger)
        seen = decode_control(mounted.read())

    assert seen == written
    assert (seen.generation, seen.devices) == (2, larger.devices)


def test_a_measurement_is_not_a_resize(tmp_path: Path) -> None:
    limit_files.create(tmp_path, _LIMITS)
    fed = Control(
        (replace(_LIMITS.devices[0], busy_ns=5),),
        measured_at_ns=9,
        processes={3: DriverUsage(pid=7, host_pid=70, start_time=1, used_bytes=(1024,))},
    )

    limit_files.update(tmp_path / "control", fed)

    seen = _read(tmp_path)
    assert (seen.generation, seen.feed_sequence, seen.measured_at_ns) == (0, 2, 9)
    assert (seen.devices, seen.processes) == (fed.devices, fed.processes)


def test_an_update_that_was_cut_short_is_finished_by_the_next(tmp_path: Path) -> None:
    limit_files.create(tmp_path, _LIMITS)
    with (tmp_path / "control").open("r+b") as control:
        control.seek(16)
        control.write((5).to_bytes(8, "little"))

    limit_files.update(tmp_path / "control", replace(_LIMITS, priority=0))

    assert (_read(tmp_path).generation, _read(tmp_path).priority) == (6, 0)


def test_readers_never_take_half_a_resize_for_a_whole_one(tmp_path: Path) -> None:
    limit_files.create(tmp_path, _LIMITS)
    path = tmp_path / "control"
    resized = [
        Control((DeviceLimit("GPU-a", size), DeviceLimit("GPU-b", size)), priority=size)
        for size in (1, 2)
    ]
    limit_files.update(path, resized[0])
    torn: list[Control] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            with path.open("rb", buffering=0) as control:
                before = control.read(24)
                control.seek(0)
                content = control.read()
                control.seek(0)
                after = control.read(24)
            if before == after == content[:24] and not before[16] % 2:
                seen = decode_control(content)
                if {device.memory_bytes for device in seen.devices} != {seen.priority}:
                    torn.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(400):
        limit_files.update(path, resized[turn % 2])
    done.set()
    reader.join()

    assert torn == []


def test_an_update_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "control").write_bytes(b"x" * CONTROL_BYTES)

    with pytest.raises(DamagedFileError, match="VGPUCTRL"):
        limit_files.update(tmp_path / "control", _LIMITS)


def test_a_usage_that_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)

    with pytest.raises(DamagedFileError, match="prw"):
        limit_files.read_usage(tmp_path / "pipe", 1)
    with pytest.raises(DamagedFileError, match=str(1 << 40)):
        limit_files.read_usage(tmp_path / "huge", 1)


def test_a_usage_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    limit_files.create(tmp_path, _LIMITS)
    (tmp_path / "link").symlink_to(tmp_path / "usage")

    with pytest.raises(OSError, match="symbolic links"):
        limit_files.read_usage(tmp_path / "link", 1)
    assert limit_files.read_usage(tmp_path / "usage", 1) == ()
