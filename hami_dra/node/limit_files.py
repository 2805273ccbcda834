"""The files of a claim on disk: made, resized and read by the agent.

What they mean is in `hami_dra.node.limits`; this module only moves bytes.
"""

import contextlib
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from hami_dra.node.limits import (
    CONTROL_BYTES,
    USAGE_BYTES,
    Control,
    DamagedFileError,
    ProcessUsage,
    decode_control,
    decode_usage,
    encode_control,
)

_NUMBER: Final = struct.Struct("<Q")
_GENERATION_OFFSET: Final = 16
_FLAGS_OFFSET: Final = 24
_FEED_OFFSET: Final = 48
_MEASURED_OFFSET: Final = 56
_HEADER_BYTES: Final = 64
_TRIES: Final = 5
_CONTROL_MODE: Final = 0o644
_USAGE_MODE: Final = 0o666


def create(directory: Path, control: Control) -> None:
    """Make `control` and `usage` in the claim's directory; an existing `usage` keeps its content.

    The directory must not be writable for the container.

    Raises:
        OSError: if the directory is missing or cannot be written.
        ValueError: if the limits cannot be written down.
    """
    folder = os.fspath(directory)
    with _opened(f"{folder}/.control", os.O_CREAT | os.O_WRONLY | os.O_TRUNC) as descriptor:
        _write(descriptor, encode_control(control), 0)
        os.fchmod(descriptor, _CONTROL_MODE)
    os.replace(f"{folder}/.control", f"{folder}/control")  # noqa: PTH105 - strings already
    with (
        contextlib.suppress(FileExistsError),
        _opened(f"{folder}/usage", os.O_CREAT | os.O_EXCL | os.O_WRONLY) as descriptor,
    ):
        # Without blocks, which the library asks for before it touches them: most of a megabyte of
        # memory that only containers that compute need, and that is then counted as theirs.
        os.ftruncate(descriptor, USAGE_BYTES)
        os.fchmod(descriptor, _USAGE_MODE)


def update(path: Path, control: Control) -> Control:
    """Change `control` under running processes, which see the new limits at their next call.

    The file is written in place, because containers have this very file mounted and mapped.
    A sequence goes odd before its content changes and even after it; every step is a
    system call of its own, so no processor lets a reader see them in another order.

    Args:
        path: of `control`.
        control: the new content; its sequences are replaced by those that follow the file's.

    Returns:
        What was written.

    Raises:
        DamagedFileError: if what stands there is no control file; make it anew.
        OSError: if it cannot be opened or written.
        ValueError: if the limits cannot be written down.
    """
    with _opened(path, os.O_RDWR) as descriptor:
        before = decode_control(_read(descriptor, CONTROL_BYTES))
        same = _limits(control) == _limits(before)
        after = replace(
            control,
            generation=before.generation if same else _following(before.generation),
            feed_sequence=_following(before.feed_sequence),
        )
        data = encode_control(after)
        if not same:
            _write(descriptor, _NUMBER.pack(after.generation - 1), _GENERATION_OFFSET)
        _write(descriptor, _NUMBER.pack(after.feed_sequence - 1), _FEED_OFFSET)
        _write(descriptor, data[_FLAGS_OFFSET:_FEED_OFFSET], _FLAGS_OFFSET)
        _write(descriptor, data[_MEASURED_OFFSET:], _MEASURED_OFFSET)
        _write(descriptor, data[_FEED_OFFSET:_MEASURED_OFFSET], _FEED_OFFSET)
        _write(descriptor, data[_GENERATION_OFFSET:_FLAGS_OFFSET], _GENERATION_OFFSET)
        return after


def read_control(path: Path) -> Control:
    """Read the limits of a claim, and what was measured of it, while the agent may be writing.

    Raises:
        DamagedFileError: if what stands there is no control file.
        OSError: if it cannot be opened.
    """
    with _opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        _check_kind(descriptor, path, CONTROL_BYTES)
        for _ in range(_TRIES):
            data = _read(descriptor, CONTROL_BYTES)
            if _sequences(data) == _sequences(_read(descriptor, _HEADER_BYTES)) and not any(
                number % 2 for number in _sequences(data)
            ):
                break
        # Whoever writes all the time, or died over it: each number is valid by itself.
        return decode_control(data)


def read_usage(path: Path, device_count: int) -> tuple[ProcessUsage, ...]:
    """Read the live processes of a claim from its `usage`.

    Args:
        path: of the file; a link, a pipe or a file of another size counts as damage.
        device_count: how many devices the claim has, from the agent's own books.

    Raises:
        DamagedFileError: if it is not such a file.
        OSError: if it cannot be opened.
    """
    with _opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        _check_kind(descriptor, path, USAGE_BYTES)
        if is_untouched(descriptor):
            return ()
        return decode_usage(_read(descriptor, USAGE_BYTES), device_count)


def is_untouched(usage: Path | int) -> bool:
    """Tell whether a `usage`, by its path or descriptor, is as it was made: no process has used it.

    Raises:
        OSError: if there is none.
    """
    return os.stat(usage).st_blocks == 0  # noqa: PTH116 - a descriptor too


def _check_kind(descriptor: int, path: Path, size: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        raise DamagedFileError(
            f"found {stat.filemode(found.st_mode)} of {found.st_size} bytes at {path}, "
            f"expected a regular file of {size}"
        )


def _sequences(data: bytes) -> tuple[int, ...]:
    """Return generation and feed sequence; none for a file that ends before them."""
    if len(data) < _HEADER_BYTES:
        return ()
    return tuple(_NUMBER.unpack_from(data, at)[0] for at in (_GENERATION_OFFSET, _FEED_OFFSET))


def _following(sequence: int) -> int:
    # An agent that died while writing left an odd number behind.
    return (sequence | 1) + 1


def _limits(control: Control) -> Control:
    devices = tuple(replace(device, busy_ns=0) for device in control.devices)
    return Control(devices, control.flags, control.core_policy, control.priority)


@contextlib.contextmanager
def _opened(path: Path | str, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    # A file may shrink or grow under a reader; what was read decides, and its length is checked.
    data = os.pread(descriptor, size, 0)
    while len(data) < size and (piece := os.pread(descriptor, size - len(data), len(data))):
        data += piece
    return data


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
