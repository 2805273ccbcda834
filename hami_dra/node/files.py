"""Files that are whole or not there, however the process ends.

The kernel keeps what a killed process wrote, so nothing here waits for the disk: after a power
cut or a reboot no container of ours runs, and what was written before counts for nothing
(`hami_dra.node.checkpoint` tells by the boot's id and finds torn files by their digest).
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_TEMPORARY: Final = ".tmp-"

Step = Callable[[str], None]
"""Told before each change of the disk what follows; tests end the process there."""


def no_step(_: str) -> None:
    """Do nothing between two changes."""


class Files:
    """Changes of the disk, each a single one or undone by whoever comes next.

    Args:
        step: told before each change.
    """

    def __init__(self, step: Step = no_step) -> None:
        self.step = step

    def write(self, path: Path, content: bytes, *, mode: int = 0o644) -> None:
        """Have a file with this content; its name never shows another one.

        Raises:
            OSError: if the disk is full or read-only, with nothing left behind.
        """
        with self._replacing(path) as temporary:
            self.step(f"write {path.name}")
            _write(temporary, content, mode, os.O_TRUNC)

    def create(self, path: Path, content: bytes, *, mode: int = 0o644) -> None:
        """Have a file with this content where nobody looks yet; it may be found half written.

        Raises:
            FileExistsError: if there is one.
            OSError: if the disk is full or read-only.
        """
        self.step(f"create {path.name}")
        _write(path, content, mode, os.O_EXCL)

    def write_keeping(self, path: Path, previous: Path, content: bytes, *, mode: int) -> None:
        """Have a file with this content, and what it was before under another name.

        The file before the previous one is written over and becomes the new one. To make a file
        and remove one instead costs milliseconds wherever the disk is busy, since a file system
        then allocates and frees blocks before it goes on.

        Raises:
            OSError: if the disk is full or read-only, with the file as it was.
        """
        temporary = self.temporary(path)
        if _has_one_name(previous):
            self.step(f"rename {previous.name}")
            previous.replace(temporary)
        self.step(f"write {path.name}")
        # What fails here stays, with the blocks that it has: what is less fits into them when the
        # disk is full, and nobody else can take them.
        _write(temporary, content, mode)
        if path.exists():
            self.step(f"link {previous.name}")
            previous.unlink(missing_ok=True)
            previous.hardlink_to(path)
        self.step(f"rename {path.name}")
        temporary.replace(path)

    @staticmethod
    def temporary(path: Path) -> Path:
        """Return the name under which a file is written."""
        return Path(f"{path.parent}/{_TEMPORARY}{path.name}")

    @contextlib.contextmanager
    def _replacing(self, path: Path) -> Iterator[Path]:
        """Lend a name for what becomes this file at the end, or goes with an OSError."""
        temporary = self.temporary(path)
        try:
            yield temporary
            self.step(f"rename {path.name}")
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise

    def remove(self, path: Path) -> None:
        """Have no such file."""
        self.step(f"remove {path.name}")
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> bool:
        """Have such a directory, which others may enter but not change; tell whether it is new."""
        self.step(f"make {path.name}")
        try:
            os.mkdir(path, 0o755)  # noqa: PTH102 - a Path's own looks first
        except FileExistsError:
            return False
        return True

    def remove_tree(self, path: Path) -> None:
        """Have no such directory."""
        self.step(f"remove {path.name}")
        try:
            # Files alone, as is usual; rmtree opens and compares each directory first.
            for name in os.listdir(path):  # noqa: PTH208 - names are all that is needed
                os.unlink(f"{path}/{name}")  # noqa: PTH108 - a path of its own would be made
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            shutil.rmtree(path)


def is_temporary(name: str) -> bool:
    """Tell whether a write that never ended left this name."""
    return name.startswith(_TEMPORARY)


def without_temporary(name: str) -> str:
    """Return the name that a write was meant for."""
    return name.removeprefix(_TEMPORARY)


def read(path: Path) -> bytes | None:
    """Return a file's content, or None if there is none.

    Raises:
        OSError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _has_one_name(path: Path) -> bool:
    """Tell whether a file is nothing else as well: a killed process leaves two names of one."""
    try:
        return path.stat(follow_symlinks=False).st_nlink == 1
    except FileNotFoundError:
        return False


def _write(path: Path, content: bytes, mode: int, how: int = 0) -> None:
    """Have this content in a file, in place of whatever a write that never ended left there.

    System calls and nothing around them: between two, another thread may take over for long.

    Args:
        path: of the file.
        content: all of it.
        mode: who can read it, whatever the process's umask is.
        how: flags beside those to write; without any, the blocks of a file that is there are kept.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how
    descriptor = os.open(path, flags, mode)
    try:
        if mode & _MASK:
            os.fchmod(descriptor, mode)
        written = os.write(descriptor, content)
        while written < len(content):
            written += os.write(descriptor, memoryview(content)[written:])
        if not how:
            os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_MASK: Final = _umask()
