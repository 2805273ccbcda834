"""Where manifests come from: files, directories, standard input, kustomizations."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

STDIN: Final = "-"
"""The name of standard input."""

_SUFFIXES: Final = (".yaml", ".yml", ".json")
_URL: Final = ("http://", "https://")
_BOM: Final = "\ufeff"


class UnreadableError(Exception):
    """An input cannot be read; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Source:
    """One input.

    Attributes:
        name: for messages: the file's path, `-`, or the kustomization's directory.
        root: the directory that was named, or that holds the file that was named; None for what
            is no file.
        is_found: whether it was found in the directory that was named, where nobody meant a named
            pipe, which can be waited for without end.
    """

    name: str
    root: Path | None = None
    is_kustomization: bool = False
    is_found: bool = False

    @property
    def path(self) -> Path | None:
        """Return the file's path; None for what is no file."""
        return Path(self.name) if self.root is not None else None

    def read(self) -> bytes:
        """Return the input, whole.

        Raises:
            UnreadableError: if it is not there or not readable.
        """
        if self.is_kustomization:
            return _kustomized(self.name)
        if self.is_found:
            _check_regular(self.name)
        return _read_bytes(self.name)


def files(names: Iterable[str], *, recursive: bool) -> Iterator[Source]:
    """Walk the inputs that `-f` names; those of a directory in the order of their paths.

    Args:
        names: files, directories, or `-`.
        recursive: whether to look into directories below.

    Raises:
        UnreadableError: if one is not there, or a directory holds no manifest or cannot be read.
    """
    for name in names:
        if not name:  # an unset variable; a path would take it for the current directory
            raise UnreadableError("-f: found an empty name, expected a file, a directory or -")
        if name == STDIN:
            yield Source(STDIN)
        elif name.startswith(_URL):
            raise UnreadableError(
                f"{name}: found a URL, expected a file; pipe it: curl -fsSL {name} | hami-dra"
                " convert -f -"
            )
        elif os.path.isdir(name):  # noqa: PTH112 - Path's raises where nobody may look
            yield from _directory(Path(name), recursive=recursive)
        else:
            yield Source(name, Path(name).parent)


def _directory(root: Path, *, recursive: bool) -> Iterator[Source]:
    real_root = os.path.realpath(root)
    found = list(_walked(root, recursive=recursive))
    if not found:
        below = "" if recursive else "; -R looks into directories below"
        raise UnreadableError(f"{root}: found no {', '.join(_SUFFIXES)} file{below}")
    # What a symbolic link shows from elsewhere is not ours to convert.
    # One that leads to itself is there, and cannot be read.
    ours = [
        path
        for path in found
        if not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(real_root)
    ]
    if not ours:
        raise UnreadableError(
            f"{root}: found symbolic links that lead out of it and nothing else; name their files"
        )
    yield from (Source(str(path), root, is_found=True) for path in ours)


def _walked(root: Path, *, recursive: bool) -> Iterator[Path]:
    for directory, below, names in os.walk(root, onerror=_unreadable):
        below.sort()
        if not recursive:
            below.clear()
        for name in sorted(names):
            if name.endswith(_SUFFIXES):
                yield Path(directory, name)


def _unreadable(error: OSError) -> NoReturn:
    raise UnreadableError(f"{error.filename}: {error.strerror}; name what can be read") from error


def _kustomized(directory: str) -> bytes:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UnreadableError(
            f"{directory}: found no kubectl, which builds kustomizations; install it, or pipe:"
            f" kustomize build {directory} | hami-dra convert -f -"
        )
    ran = subprocess.run([kubectl, "kustomize", directory], capture_output=True, check=False)
    if ran.returncode:
        said = ran.stderr.decode(errors="replace").strip()
        raise UnreadableError(f"{directory}: kubectl kustomize failed: {said}")
    return ran.stdout


def read_text(name: str) -> str:
    """Read a file, or standard input for `-`, whole.

    Raises:
        UnreadableError: if it is not there, not readable or not UTF-8.
    """
    return as_text(name, _read_bytes(name)).removeprefix(_BOM)


def _check_regular(name: str) -> None:
    """Refuse what is no file although its name ends like one: a pipe, a socket, a device.

    Raises:
        UnreadableError: if it is none, or cannot be looked at.
    """
    try:
        mode = Path(name).stat().st_mode
    except OSError as error:
        raise _not_read(name, error) from error
    if not stat.S_ISREG(mode):
        raise UnreadableError(
            f"{name}: found a pipe, socket or device, expected a file; name it itself to read it"
        )


def _read_bytes(name: str) -> bytes:
    if name == STDIN and sys.stdin is None:
        raise UnreadableError(f"{STDIN}: standard input is closed; name a readable file")
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise _not_read(name, error) from error


def _not_read(name: str, error: OSError) -> UnreadableError:
    return UnreadableError(f"{name}: {error.strerror}; name a readable file, or - for stdin")


def as_text(name: str, data: bytes) -> str:
    """Decode an input.

    Raises:
        UnreadableError: if it is not UTF-8.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise UnreadableError(
            f"{name}:{line}:{column}: byte {error.start} is not UTF-8; save it as UTF-8"
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise UnreadableError(f"{name}:{line}: found a null character; save it as UTF-8 text")
    return text
