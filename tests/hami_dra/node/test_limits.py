"""Behaviour of the bytes that agent and native library share."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.node.limits import (
    CONTROL_BYTES,
    MAX_DEVICES,
    MAX_SLOTS,
    USAGE_BYTES,
    ClaimFlag,
    Control,
    CorePolicy,
    DamagedFileError,
    DeviceFlag,
    DeviceLimit,
    DriverUsage,
    decode_control,
    decode_usage,
    encode_control,
)

_NUMBERS = st.integers(0, 2**64 - 1)
_NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=95)
_HEADER = struct.Struct("<8sIIQII96x")
_SLOTS_OFFSET = 128 + 32 * 128
_SLOT_BYTES = 128 + 32 * 96
_PEBIBYTE = 2**50


@st.composite
def _controls(draw: st.DrawFn) -> Control:
    devices = draw(
        st.lists(
            st.builds(
                DeviceLimit,
                uuid=_NAMES,
                memory_bytes=st.none() | st.integers(0, 2**64 - 2),
                core_percent=st.integers(0, 100),
                context_bytes=_NUMBERS,
                flags=st.sampled_from([DeviceFlag.NONE, *DeviceFlag]),
                busy_ns=_NUMBERS,
            ),
            max_size=4,
        )
    )
    process = st.builds(
        DriverUsage,
        pid=st.integers(1, 2**22),
        host_pid=st.integers(1, 2**22),
        start_time=_NUMBERS,
        used_bytes=st.lists(_NUMBERS, min_size=len(devices), max_size=len(devices)).map(tuple),
    )
    return Control(
        devices=tuple(devices),
        flags=draw(st.sampled_from([ClaimFlag.NONE, *ClaimFlag])),
        core_policy=draw(st.sampled_from(list(CorePolicy))),
        priority=draw(st.integers(0, 2**32 - 1)),
        generation=draw(st.integers(0, 2**63 - 1)) * 2,
        feed_sequence=draw(st.integers(0, 2**63 - 1)) * 2,
        measured_at_ns=draw(_NUMBERS),
        processes=draw(st.dictionaries(st.integers(0, MAX_SLOTS - 1), process, max_size=3)),
    )


def _usage(*slots: bytes, version: int = 1, state: int = 1) -> bytes:
    header = _HEADER.pack(b"VGPUSAGE", version, state, USAGE_BYTES, len(slots), 0)
    body = b"".join(slot.ljust(_SLOT_BYTES, b"\0") for slot in slots)
    return (header.ljust(_SLOTS_OFFSET, b"\0") + body).ljust(USAGE_BYTES, b"\0")


def _slot(*numbers: int, pid: int = 7, sequence: int = 2, state: int = 1) -> bytes:
    head = struct.pack("<IIIIQQ96x", sequence, state, pid, 0, 4711, 42)
    return head + struct.pack("<10Q16x", *numbers, *[0] * (10 - len(numbers)))


@given(_controls())
def test_control_reads_back_as_written(control: Control) -> None:
    data = encode_control(control)

    assert len(data) == CONTROL_BYTES
    assert decode_control(data) == control


def test_an_unwritten_device_grants_no_memory() -> None:
    data = bytearray(encode_control(Control((DeviceLimit("GPU-a", None),))))
    data[64 + 96 : 64 + 192] = bytes(96)

    assert decode_control(bytes(data)).devices == (DeviceLimit("GPU-a", 0),)


@pytest.mark.parametrize(
    ("control", "message"),
    [
        (Control((DeviceLimit("", None),)), "UUID ''"),
        (Control((DeviceLimit("G" * 96, None),)), "1 to 95 ASCII"),
        (Control((DeviceLimit("GPU-\0", None),)), "1 to 95 ASCII"),
        (Control((DeviceLimit("GPU-a", None, core_percent=101),)), "101 percent"),
        (Control((DeviceLimit("GPU-a", -1),)), "outside of its field"),
        (Control((DeviceLimit("GPU-a", None),) * (MAX_DEVICES + 1)), "33 devices"),
        (Control((), generation=1), "odd generation"),
        (Control((), priority=2**32), "outside of its field"),
        (Control((), processes={MAX_SLOTS: DriverUsage(1, 1, 1, ())}), r"slots \[256\]"),
        (Control((), processes={0: DriverUsage(1, 1, 1, (0,) * 33)}), "33 devices"),
    ],
)
def test_limits_that_the_file_cannot_say_are_refused(control: Control, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode_control(control)


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"X", "expected b'VGPUCTRL'"),
        (8, b"\2", "version 2"),
        (12, b"\x21", "33 devices"),
        (28, b"\3", "core policy 3"),
        (64, b"\0", "UUID"),
        (64 + 112, b"\x65", "101 percent"),
    ],
)
def test_a_damaged_control_is_named(offset: int, value: bytes, message: str) -> None:
    data = bytearray(encode_control(Control((DeviceLimit("GPU-a", None),))))
    data[offset : offset + len(value)] = value

    with pytest.raises(DamagedFileError, match=message):
        decode_control(bytes(data))


def test_a_usage_file_that_no_process_touched_holds_nobody() -> None:
    assert decode_usage(bytes(USAGE_BYTES), 1) == ()
    assert decode_usage(_usage(_slot(), state=0), 1) == ()


def test_a_live_process_is_read_with_its_bytes_by_kind() -> None:
    (process,) = decode_usage(_usage(_slot(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)), 1)

    (device,) = process.devices
    assert (process.slot, process.pid, process.start_time, process.pid_namespace) == (
        0,
        7,
        4711,
        42,
    )
    assert (device.data_bytes, device.context_bytes, device.total_bytes) == (1, 6, 21)
    assert (device.allocations, device.refusals, device.launches) == (7, 8, 9)
    assert device.throttled_ns == 10
    assert process.is_plausible


@pytest.mark.parametrize(
    "slot",
    [_slot(state=0), _slot(sequence=3), _slot(pid=0), _slot(pid=2**22 + 1), _slot(state=9)],
    ids=["free", "being claimed", "no pid", "impossible pid", "unknown state"],
)
def test_slots_of_nobody_are_passed_over(slot: bytes) -> None:
    (process,) = decode_usage(_usage(slot, _slot(1)), 1)

    assert process.slot == 1


def test_absurd_byte_counts_are_cut_and_marked() -> None:
    (process,) = decode_usage(_usage(_slot(2**64 - 1, 2**64 - 1)), 1)

    assert process.devices[0].total_bytes == 2 * _PEBIBYTE
    assert not process.is_plausible


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found 0 bytes"),
        (_usage()[:-1], f"found {USAGE_BYTES - 1} bytes"),
        (_usage() + b"\0", f"found {USAGE_BYTES + 1} bytes"),
        (_usage(version=2), "version 2"),
        (b"\1" * USAGE_BYTES, "expected b'VGPUSAGE'"),
    ],
    ids=["empty", "short", "long", "newer", "noise"],
)
def test_a_damaged_usage_is_named(data: bytes, message: str) -> None:
    with pytest.raises(DamagedFileError, match=message):
        decode_usage(data, 1)


@given(
    st.binary(max_size=256),
    st.lists(st.tuples(st.integers(0, USAGE_BYTES - 1), st.binary(max_size=64)), max_size=20),
    st.integers(0, MAX_DEVICES),
)
def test_whatever_stands_in_usage_reading_ends_bounded(
    start: bytes, patches: list[tuple[int, bytes]], device_count: int
) -> None:
    data = bytearray(_usage(*[_slot(1)] * 4))
    for offset, patch in [*patches, (0, start)] if len(start) % 2 else patches:
        data[offset : offset + len(patch)] = patch

    try:
        processes = decode_usage(bytes(data), device_count)
    except DamagedFileError:
        return

    assert len(processes) <= MAX_SLOTS
    for process in processes:
        assert 0 < process.pid <= 2**22
        assert len(process.devices) == device_count
        assert all(0 <= device.total_bytes <= 6 * _PEBIBYTE for device in process.devices)
