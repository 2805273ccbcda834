"""What the agent keeps of each claim, and what its containers wrote: read, bounded, never followed.

`record.json` and `control` are the agent's; `usage` is writable for containers. What cannot be read
of one claim is said of that claim and hides no other.
"""

import json
import os
import re
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from hami_dra.node import limit_files
from hami_dra.node.limits import Control, DamagedFileError, ProcessUsage
from hami_dra.node.record import FILE as RECORD
from hami_dra.node.record import Record, RecordError, from_json

MOST: Final = 1024
"""Claims that are looked at; a kubelet runs some hundred pods."""

_LARGEST_RECORD: Final = 256 * 1024
_NAME: Final = re.compile(r"[0-9A-Za-z-]{1,63}")


class File(StrEnum):
    """A file of a claim."""

    RECORD = "record"
    CONTROL = "control"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class Refused:
    """A file that was not believed.

    Attributes:
        uid: of its claim.
        file: which one.
        why: what was found.
    """

    uid: str
    file: File
    why: str


@dataclass(frozen=True, slots=True)
class ClaimReading:
    """One claim of this node.

    Attributes:
        record: what it holds.
        control: its limits and what was measured; None if that cannot be read.
        processes: as they describe themselves; None if that cannot be read or believed.
    """

    record: Record
    control: Control | None
    processes: tuple[ProcessUsage, ...] | None


@dataclass(frozen=True, slots=True)
class ClaimsReading:
    """All claims of this node.

    Attributes:
        claims: those whose records can be read.
        refused: files that were not believed.
        left_out: how many claims were not looked at, being too many.
    """

    claims: tuple[ClaimReading, ...]
    refused: tuple[Refused, ...] = ()
    left_out: int = 0


def read(directory: Path) -> ClaimsReading:
    """Read the claims in the agent's directory; none where no agent has made one.

    Raises:
        OSError: if the directory cannot be listed.
    """
    try:
        names = sorted(each.name for each in directory.iterdir() if _NAME.fullmatch(each.name))
    except FileNotFoundError:
        return ClaimsReading(())
    reader = _Reader()
    claims = (reader.claim(directory / name, name) for name in names[:MOST])
    found = tuple(claim for claim in claims if claim is not None)
    return ClaimsReading(found, tuple(reader.refused), max(0, len(names) - MOST))


class _Reader:
    """Reads one claim after the other, and remembers what it did not believe."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []

    def claim(self, directory: Path, uid: str) -> ClaimReading | None:
        """Read a claim; None without a record, as while it is made or removed."""
        try:
            record = _record(directory / RECORD, uid)
        except (OSError, ValueError, RecursionError, RecordError) as error:
            self._refuse(uid, File.RECORD, error)
            return None
        control = self._control(directory / "control", uid)
        processes = self._processes(directory / "usage", uid, control) if control else None
        return ClaimReading(record, control, processes)

    def _control(self, path: Path, uid: str) -> Control | None:
        try:
            return limit_files.read_control(path)
        except (OSError, DamagedFileError) as error:
            self._refuse(uid, File.CONTROL, error)
            return None

    def _processes(self, path: Path, uid: str, control: Control) -> tuple[ProcessUsage, ...] | None:
        try:
            return _plausible(limit_files.read_usage(path, len(control.devices)))
        except (OSError, DamagedFileError) as error:
            self._refuse(uid, File.USAGE, error)
            return None

    def _refuse(self, uid: str, file: File, error: Exception) -> None:
        # Gone between two looks: the claim is being made or removed.
        if not isinstance(error, FileNotFoundError):
            self.refused.append(Refused(uid, file, str(error)))


def _plausible(found: tuple[ProcessUsage, ...]) -> tuple[ProcessUsage, ...]:
    if not all(process.is_plausible for process in found):
        raise DamagedFileError("found a process with more memory than any card has")
    return found


def _record(path: Path, uid: str) -> Record:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - flags
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise RecordError(f"found no regular file at {path}")
        data = file.read(_LARGEST_RECORD + 1)
    if len(data) > _LARGEST_RECORD:
        raise RecordError(f"found more than {_LARGEST_RECORD} bytes at {path}")
    return from_json(uid, json.loads(data))
