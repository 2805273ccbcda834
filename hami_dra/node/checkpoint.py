"""The agent's memory on disk (ruling 40): a header, then one JSON body.

The header holds the format's number and the length and SHA-256 of the body's bytes, so that a new
field never makes an old file look damaged, and a newer format is known for what it is even when
its body means nothing to us. The file before this one is kept beside it.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from hami_dra.node.files import Files, read
from hami_dra.node.record import Record, RecordError, from_json

FORMAT: Final = 1

NAME: Final = "checkpoint"
PREVIOUS: Final = "checkpoint.1"

_HEADER: Final = re.compile(
    rb"hami-dra-checkpoint (?P<format>[0-9]{1,9}) (?P<length>[0-9]{1,12}) (?P<digest>[0-9a-f]{64})"
)
_LONGEST_HEADER: Final = 128
_NAMES: Final = frozenset({"bootID", "claims"})


class DamagedError(ValueError):
    """The bytes are not what was written."""


class NewerFormatError(Exception):
    """A newer release wrote the checkpoint; this one must neither use nor replace it."""


class Source(StrEnum):
    """Where the memory came from."""

    CURRENT = "current"
    PREVIOUS = "previous"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Content:
    """What a checkpoint says.

    Attributes:
        boot_id: of the boot in which it was written.
        records: by claim UID.
        unknown: what a newer release wrote beside these.
        unreadable: records that mean nothing to this release, by claim UID; they are kept.
    """

    boot_id: str
    records: Mapping[str, Record]
    unknown: Mapping[str, Any] = field(default_factory=dict)
    unreadable: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint as it was found.

    Attributes:
        content: what it says.
        source: which file said it.
        troubles: what was wrong, a sentence each.
    """

    content: Content
    source: Source
    troubles: tuple[str, ...] = ()


class Checkpoint:
    """The two files of one directory."""

    def __init__(self, directory: Path, files: Files) -> None:
        self._directory = directory
        self._files = files

    def load(self, boot_id: str) -> Loaded:
        """Read what was last written; a damaged file is moved aside and the one before it read.

        Raises:
            NewerFormatError: if a newer release wrote it.
            OSError: if the directory cannot be read.
        """
        troubles: list[str] = []
        for name, source in ((NAME, Source.CURRENT), (PREVIOUS, Source.PREVIOUS)):
            data = read(self._directory / name)
            if data is None:
                continue
            try:
                content = decode(data)
            except DamagedError as error:
                troubles.append(self._quarantine(name, error))
                continue
            troubles += [
                f"the checkpoint's record of {uid} is unreadable and kept as it is"
                for uid in content.unreadable
            ]
            return Loaded(content, source, tuple(troubles))
        return Loaded(Content(boot_id, {}), Source.NOTHING, tuple(troubles))

    def version(self) -> bytes | None:
        """Return the header, which tells one content from another; None if there is no file."""
        try:
            descriptor = os.open(self._directory / NAME, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return os.read(descriptor, _LONGEST_HEADER).partition(b"\n")[0]
        finally:
            os.close(descriptor)

    def save(self, content: Content) -> bytes:
        """Replace what is remembered; return its header, which is its version.

        Raises:
            OSError: if it cannot be written; what was remembered before still is.
        """
        path, previous = self._directory / NAME, self._directory / PREVIOUS
        data = encode(content)
        self._files.write_keeping(path, previous, data, mode=0o600)
        return data[: data.index(b"\n")]

    def remove(self) -> None:
        """Remember nothing; the older file goes first, so that it never speaks for the newer.

        Raises:
            OSError: if the disk refuses.
        """
        current = self._directory / NAME
        for path in (self._files.temporary(current), self._directory / PREVIOUS, current):
            self._files.remove(path)

    def _quarantine(self, name: str, error: DamagedError) -> str:
        """Keep a damaged file for whoever wants to know, out of the way of the next one."""
        path = self._directory / name
        aside = self._directory / f"{name}.damaged"
        path.replace(aside)
        return f"the checkpoint {path} is damaged ({error}); it was moved to {aside.name}"


def encode(content: Content) -> bytes:
    """Write a checkpoint."""
    head = json.dumps({**content.unknown, "bootID": content.boot_id}, separators=(",", ":"))
    # Records keep their text, so that a change of one does not cost a rendering of all.
    entries = [record.entry for record in content.records.values()]
    entries += [
        f"{json.dumps(uid)}:{json.dumps(found)}"
        for uid, found in content.unreadable.items()
        if uid not in content.records
    ]
    claims = ",".join(entries)
    body = f'{head[:-1]},"claims":{{{claims}}}}}\n'.encode()
    digest = hashlib.sha256(body).hexdigest()
    return f"hami-dra-checkpoint {FORMAT} {len(body)} {digest}\n".encode() + body


def decode(data: bytes) -> Content:
    """Read a checkpoint.

    Raises:
        DamagedError: if the bytes are not what was written.
        NewerFormatError: if a newer release wrote it.
    """
    header, _, body = data.partition(b"\n")
    match = _HEADER.fullmatch(header)
    if match is None:
        raise DamagedError(f"found no header in {len(data)} bytes")
    if int(match["format"]) > FORMAT:
        raise NewerFormatError(
            f"found a checkpoint of format {int(match['format'])}, expected at most {FORMAT}: a"
            " newer release of hami-dra-node wrote it; install that release again, or drain the"
            " node and remove the file"
        )
    if len(body) != int(match["length"]):
        raise DamagedError(f"found {len(body)} bytes, expected {int(match['length'])}")
    if hashlib.sha256(body).hexdigest() != match["digest"].decode():
        raise DamagedError("found other bytes than were written")
    return _content(body)


def _content(body: bytes) -> Content:
    """Read a body that is as it was written; one unreadable record must not lose the others."""
    found = json.loads(body)
    records: dict[str, Record] = {}
    unreadable: dict[str, Any] = {}
    for uid, entry in found["claims"].items():
        try:
            records[uid] = from_json(uid, entry)
        except RecordError:
            unreadable[uid] = entry
    unknown = {name: value for name, value in found.items() if name not in _NAMES}
    return Content(str(found["bootID"]), records, unknown, unreadable)
