"""Where results go: standard output, or files, of which none is ever seen half written."""

import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hami_dra.cli.exits import USAGE, fail
from hami_dra.cli.sources import Source, UnreadableError


class Output(Protocol):
    """Takes the result for each input, in order."""

    def put(self, source: Source, data: bytes, *, changed: bool) -> None:
        """Take what an input became.

        Raises:
            UnreadableError: if it cannot be written.
        """

    def finish(self) -> None:
        """Write what is left."""


@dataclass(slots=True)
class ToStdout:
    """Prints all results as one stream, separated where the inputs do not do it themselves."""

    _is_first: bool = True
    _ends_line: bool = True
    _is_json: bool = False

    def put(self, source: Source, data: bytes, *, changed: bool) -> None:  # noqa: ARG002
        """Print."""
        if not data:
            return
        out = sys.stdout.buffer
        if not self._is_first:
            out.write(b"" if self._ends_line else b"\n")
            is_separated = data.startswith((b"---", b"...")) or (self._is_json and _is_json(data))
            out.write(b"" if is_separated else b"---\n")
        out.write(data)
        self._is_first, self._ends_line, self._is_json = False, data.endswith(b"\n"), _is_json(data)

    def finish(self) -> None:
        """Hand over to whoever reads."""
        sys.stdout.buffer.flush()


def _is_json(data: bytes) -> bool:
    return data.lstrip().startswith(b"{")


@dataclass(frozen=True, slots=True)
class InPlace:
    """Replaces each file that changed."""

    def put(self, source: Source, data: bytes, *, changed: bool) -> None:
        """Replace."""
        if changed and source.path is not None and source.root is not None:
            real = Path(os.path.realpath(source.path))
            if not real.is_relative_to(os.path.realpath(source.root)):
                raise UnreadableError(
                    f"{source.name}: found a symbolic link to {real}, which is outside; name that"
                    " file itself"
                )
            write(real, data)

    def finish(self) -> None:
        """Do nothing; every file is written."""


@dataclass(frozen=True, slots=True)
class ToDirectory:
    """Writes all results below a directory, under their paths from what was named."""

    directory: Path
    _taken: dict[Path, str] = field(default_factory=dict)

    def put(self, source: Source, data: bytes, *, changed: bool) -> None:  # noqa: ARG002
        """Write."""
        below = Path("manifests.yaml")
        if source.path is not None and source.root is not None:
            below = source.path.relative_to(source.root)
        target = self.directory / below
        if target in self._taken:
            raise UnreadableError(
                f"{source.name}: {self._taken[target]} was written to {target} already; give each"
                " input a directory of its own"
            )
        self._taken[target] = source.name
        real = Path(os.path.realpath(target.parent))
        if not real.is_relative_to(os.path.realpath(self.directory)):
            raise UnreadableError(f"{target}: leads out of {self.directory} by a symbolic link")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnreadableError(f"{target.parent}: {error.strerror}") from error
        write(target, data)

    def finish(self) -> None:
        """Do nothing; every file is written."""


def chosen(sources: Iterable[Source], directory: Path | None, *, in_place: bool) -> Output:
    """Return where results go as they are; end the command for inputs that are no files."""
    if directory is not None:
        return ToDirectory(directory)
    if not in_place:
        return ToStdout()
    for source in sources:
        is_pipe = not source.is_found and source.path and _is_pipe_or_device(source.path)
        if source.path is None or is_pipe:
            fail(f"--in-place: found {source.name}, expected files", code=USAGE)
    return InPlace()


def _is_pipe_or_device(path: Path) -> bool:
    with suppress(OSError):  # what cannot be looked at is told when it is read or written
        mode = path.stat().st_mode
        return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
    return False


def write(path: Path, data: bytes) -> None:
    """Replace a file as a whole, or create it; a crash leaves the old one or the new one.

    Mode and, where we may, owner stay. Into a pipe or a device, such as /dev/stdout, it is written,
    since a file in its place would take it from everybody.

    Raises:
        UnreadableError: if it cannot be written.
    """
    temporary = ""
    try:
        if _is_pipe_or_device(path):
            path.write_bytes(data)
            return
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            _copy_owner(path, file.fileno())
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        temporary = ""
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}; it was not changed") from error
    finally:
        if temporary:  # on an interrupt as well
            Path(temporary).unlink(missing_ok=True)


def _copy_owner(path: Path, descriptor: int) -> None:
    """Give a new file the mode and owner of the one that it replaces."""
    try:
        old = path.stat()
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(descriptor, 0o666 & ~mask)
        return
    with suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
