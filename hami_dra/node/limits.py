"""The two files that agent and native library share for a claim (ruling 39), as bytes.

`native/include/vgpu_abi.h` is the layout, held equal by a compiled test. A container can write
`usage`: whatever stands there, reading ends in a record with bounded numbers or in
`DamagedFileError`; no number from it is used as a length or a position.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Final

ABI_VERSION: Final = 1
MAX_DEVICES: Final = 32
MAX_SLOTS: Final = 256
CONTROL_BYTES: Final = 79936
USAGE_BYTES: Final = 823424

_CONTROL_MAGIC: Final = b"VGPUCTRL"
_USAGE_MAGIC: Final = b"VGPUSAGE"
_UUID_BYTES: Final = 96
_CONTROL: Final = struct.Struct("<8sIIQIIIIQQQ")
_DEVICE: Final = struct.Struct("<96sQQIIQ64x")
_PROCESS: Final = struct.Struct(f"<IIQ16x{MAX_DEVICES}Q")
_USAGE: Final = struct.Struct("<8sIIQII96x")
_USAGE_DEVICE_BYTES: Final = 128
_SLOT: Final = struct.Struct("<IIIIQQ96x")
_SLOT_DEVICE: Final = struct.Struct("<6Q4Q16x")

_DEVICES_OFFSET: Final = _CONTROL.size
_PROCESSES_OFFSET: Final = _DEVICES_OFFSET + MAX_DEVICES * _DEVICE.size
_SLOTS_OFFSET: Final = _USAGE.size + MAX_DEVICES * _USAGE_DEVICE_BYTES
_SLOT_BYTES: Final = _SLOT.size + MAX_DEVICES * _SLOT_DEVICE.size

PROCESS_GONE: Final = 2**32 - 1
"""`DriverUsage.host_pid` of a process that the agent saw end: the library frees its slot."""
_UNLIMITED: Final = 2**64 - 1
_PERCENT_ALL: Final = 100
_LARGEST_PLAUSIBLE: Final = 2**50  # a pebibyte: no card holds more
_LARGEST_PID: Final = 2**22
_READY: Final = 1
_LIVE: Final = 1
_KINDS: Final = 6


class DamagedFileError(ValueError):
    """A file of a claim cannot be read: truncated, of another version, or overwritten."""


class ClaimFlag(IntFlag):
    """What holds for all devices of a claim."""

    NONE = 0
    ALLOW_DISABLE = 1
    """`CUDA_DISABLE_CONTROL=true` in the container switches the library off."""
    IGNORE_MANAGED = 2
    """Managed memory is not charged, because it may live on the host."""


class CorePolicy(IntEnum):
    """HAMi's `GPU_CORE_UTILIZATION_POLICY`."""

    DEFAULT = 0
    FORCE = 1
    DISABLE = 2


class DeviceFlag(IntFlag):
    """What the agent switches on one device while the container runs."""

    NONE = 0
    CORES_OFF = 1
    """Nobody else wants the card: compute is not limited for now."""
    BLOCKED = 2
    """A claim of higher priority is active: launches wait."""


@dataclass(frozen=True, slots=True)
class DeviceLimit:
    """What a claim may use of one GPU.

    Attributes:
        uuid: as NVML says it, `GPU-…` or `MIG-…`, at most 95 bytes of ASCII.
        memory_bytes: for all processes of the claim together; None is no limit.
        core_percent: share of the GPU's time; 0 and 100 are no limit.
        context_bytes: charged to each process until the driver's own number is known.
        flags: switches of the moment.
        busy_ns: measured GPU time of the claim since the agent began; 0 when nobody measures.
    """

    uuid: str
    memory_bytes: int | None
    core_percent: int = 0
    context_bytes: int = 0
    flags: DeviceFlag = DeviceFlag.NONE
    busy_ns: int = 0


@dataclass(frozen=True, slots=True)
class DriverUsage:
    """What the driver says about the process in one slot of `usage`.

    Attributes:
        pid: in the container, with `start_time` the proof that the slot still is the same process.
        host_pid: the same process on the node, or `PROCESS_GONE`.
        start_time: field 22 of `/proc/<pid>/stat`.
        used_bytes: by device number.
    """

    pid: int
    host_pid: int
    start_time: int
    used_bytes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Control:
    """The content of `control`.

    Attributes:
        devices: in an order that stays for the life of the claim.
        flags: for all devices.
        core_policy: when compute is limited.
        priority: HAMi's `CUDA_TASK_PRIORITY`, 0 is high.
        generation: changes with the limits; even, because odd means that a write is under way.
        feed_sequence: changes with what is measured; even.
        measured_at_ns: `CLOCK_MONOTONIC` of the measurement, 0 before the first.
        processes: the driver's numbers, by slot number.
    """

    devices: tuple[DeviceLimit, ...]
    flags: ClaimFlag = ClaimFlag.NONE
    core_policy: CorePolicy = CorePolicy.DEFAULT
    priority: int = 1
    generation: int = 0
    feed_sequence: int = 0
    measured_at_ns: int = 0
    processes: dict[int, DriverUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What one process holds and did on one GPU; byte counts are never above a pebibyte."""

    data_bytes: int
    managed_bytes: int
    array_bytes: int
    pool_bytes: int
    graph_bytes: int
    context_bytes: int
    allocations: int
    refusals: int
    launches: int
    throttled_ns: int

    @property
    def total_bytes(self) -> int:
        """Return all that is charged to the process."""
        ours = self.data_bytes + self.managed_bytes + self.array_bytes
        return ours + self.pool_bytes + self.graph_bytes + self.context_bytes


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process of a claim, as it describes itself.

    Attributes:
        slot: its number in the file, which `Control.processes` refers to.
        pid: in its own namespace.
        start_time: field 22 of `/proc/<pid>/stat`.
        pid_namespace: inode of `/proc/<pid>/ns/pid`.
        devices: by device number.
        is_plausible: False when a number had to be cut to its bound.
    """

    slot: int
    pid: int
    start_time: int
    pid_namespace: int
    devices: tuple[DeviceUsage, ...]
    is_plausible: bool


def encode_control(control: Control) -> bytes:
    """Write the whole of `control`.

    Raises:
        ValueError: if a field is outside of what the file can say.
    """
    _check_control(control)
    header = _packed(
        _CONTROL,
        _CONTROL_MAGIC,
        ABI_VERSION,
        len(control.devices),
        control.generation,
        control.flags,
        control.core_policy,
        control.priority,
        0,
        CONTROL_BYTES,
        control.feed_sequence,
        control.measured_at_ns,
    )
    devices = map(_encode_device, control.devices)
    data = bytearray(b"".join((header, *devices)).ljust(CONTROL_BYTES, b"\0"))
    for slot, process in control.processes.items():
        start = _PROCESSES_OFFSET + slot * _PROCESS.size
        data[start : start + _PROCESS.size] = _encode_process(process)
    return bytes(data)


def decode_control(data: bytes) -> Control:
    """Read `control` back; the inverse of `encode_control`.

    Raises:
        DamagedFileError: if the bytes are not such a file.
    """
    _check_file(data, _CONTROL_MAGIC, CONTROL_BYTES, _CONTROL.size)
    (_, _, count, generation, flags, policy, priority, _, _, feed, measured) = _CONTROL.unpack_from(
        data
    )
    if count > MAX_DEVICES or policy not in set(CorePolicy):
        raise DamagedFileError(
            f"found {count} devices and core policy {policy}, "
            f"expected at most {MAX_DEVICES} and a policy below {len(CorePolicy)}"
        )
    return Control(
        devices=tuple(_decode_device(data, index) for index in range(count)),
        flags=ClaimFlag(flags),
        core_policy=CorePolicy(policy),
        priority=priority,
        generation=generation,
        feed_sequence=feed,
        measured_at_ns=measured,
        processes=dict(_decode_processes(data, count)),
    )


def decode_usage(data: bytes, device_count: int) -> tuple[ProcessUsage, ...]:
    """Read the live processes out of a `usage` file; none when no process initialised it yet.

    Args:
        data: the file, which the container may have filled with anything.
        device_count: how many devices the claim has, from the agent's own books.

    Raises:
        DamagedFileError: if the bytes are not such a file.
    """
    if len(data) == USAGE_BYTES and not any(data[: _USAGE.size]):
        return ()
    _check_file(data, _USAGE_MAGIC, USAGE_BYTES, _USAGE.size)
    if _USAGE.unpack_from(data)[2] != _READY:
        return ()
    slots = (_decode_slot(data, slot, device_count) for slot in range(MAX_SLOTS))
    return tuple(process for process in slots if process is not None)


def _check_control(control: Control) -> None:
    if len(control.devices) > MAX_DEVICES:
        raise ValueError(f"found {len(control.devices)} devices, expected at most {MAX_DEVICES}")
    if control.generation % 2 or control.feed_sequence % 2:
        raise ValueError("found an odd generation or feed sequence, expected even numbers")
    if strange := [slot for slot in control.processes if not 0 <= slot < MAX_SLOTS]:
        raise ValueError(f"found slots {strange}, expected numbers below {MAX_SLOTS}")


def _encode_device(device: DeviceLimit) -> bytes:
    name = device.uuid.encode("ascii", "strict")
    if not 0 < len(name) < _UUID_BYTES or b"\0" in name:
        raise ValueError(f"found UUID {device.uuid!r}, expected 1 to 95 ASCII characters")
    if not 0 <= device.core_percent <= _PERCENT_ALL:
        raise ValueError(f"found {device.core_percent} percent of cores, expected 0 to 100")
    memory = _UNLIMITED if device.memory_bytes is None else device.memory_bytes
    return _packed(
        _DEVICE,
        name,
        memory,
        device.context_bytes,
        device.core_percent,
        device.flags,
        device.busy_ns,
    )


def _encode_process(process: DriverUsage) -> bytes:
    if len(process.used_bytes) > MAX_DEVICES:
        raise ValueError(f"found {len(process.used_bytes)} devices, expected at most {MAX_DEVICES}")
    used = [*process.used_bytes, *[0] * (MAX_DEVICES - len(process.used_bytes))]
    return _packed(_PROCESS, process.pid, process.host_pid, process.start_time, *used)


def _packed(layout: struct.Struct, *values: bytes | int) -> bytes:
    try:
        return layout.pack(*values)
    except struct.error as error:
        raise ValueError(f"found a number outside of its field in {values!r}: {error}") from error


def _check_file(data: bytes, magic: bytes, size: int, header_size: int) -> None:
    if len(data) != size:
        raise DamagedFileError(f"found {len(data)} bytes, expected {size}")
    found, version = struct.unpack_from("<8sI", data[:header_size])
    if found != magic:
        raise DamagedFileError(f"found {found!r} at the start, expected {magic!r}")
    if version != ABI_VERSION:
        raise DamagedFileError(f"found version {version}, expected {ABI_VERSION}")


def _decode_device(data: bytes, index: int) -> DeviceLimit:
    raw, memory, context, percent, flags, busy = _DEVICE.unpack_from(
        data, _DEVICES_OFFSET + index * _DEVICE.size
    )
    name, end, _ = raw.partition(b"\0")
    if not name or not end or not name.isascii() or percent > _PERCENT_ALL:
        raise DamagedFileError(f"found UUID {raw!r} and {percent} percent for device {index}")
    limit = None if memory == _UNLIMITED else memory
    return DeviceLimit(name.decode("ascii"), limit, percent, context, DeviceFlag(flags), busy)


def _decode_processes(data: bytes, device_count: int) -> Iterator[tuple[int, DriverUsage]]:
    for slot in range(MAX_SLOTS):
        pid, host_pid, start, *used = _PROCESS.unpack_from(
            data, _PROCESSES_OFFSET + slot * _PROCESS.size
        )
        if pid:
            yield slot, DriverUsage(pid, host_pid, start, tuple(used[:device_count]))


def _decode_slot(data: bytes, slot: int, device_count: int) -> ProcessUsage | None:
    offset = _SLOTS_OFFSET + slot * _SLOT_BYTES
    sequence, state, pid, _, start, namespace = _SLOT.unpack_from(data, offset)
    if state != _LIVE or sequence % 2 or not 0 < pid <= _LARGEST_PID:
        return None
    numbers = [
        _SLOT_DEVICE.unpack_from(data, offset + _SLOT.size + index * _SLOT_DEVICE.size)
        for index in range(min(device_count, MAX_DEVICES))
    ]
    return ProcessUsage(
        slot=slot,
        pid=pid,
        start_time=start,
        pid_namespace=namespace,
        devices=tuple(
            DeviceUsage(*(min(n, _LARGEST_PLAUSIBLE) for n in device[:_KINDS]), *device[_KINDS:])
            for device in numbers
        ),
        is_plausible=all(n <= _LARGEST_PLAUSIBLE for device in numbers for n in device[:_KINDS]),
    )
