"""Let two agents live on one node at one time, as in a rolling update.

The kubelet may call either of them, so neither may believe its memory: whoever works holds a lock
on a file and first looks whether the other one has written.
"""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class SecondAgentError(Exception):
    """Another agent works on this node, and this one was not told that there would be two."""


class Turns:
    """Turns of one thread, against other threads and processes.

    Args:
        path: the lock's file, made when absent.
        begin: called at the beginning of each turn, before anything else is done in it.
    """

    def __init__(self, path: Path, begin: Callable[[], None]) -> None:
        self._path = path
        self._begin = begin
        self._mutex = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Work while no other process and no other thread of this one does."""
        with self._mutex, held(self._path):
            self._begin()
            yield


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file, against other processes and other threads; wait for it."""
    descriptor = _locked(path, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def claim_for_life(path: Path) -> int:
    """Be the only agent of this node until this process ends; return the lock's descriptor.

    Raises:
        SecondAgentError: if another one is.
    """
    try:
        return _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SecondAgentError(
            f"another agent holds {path}: this node already has one; stop it first, or give each"
            " an --instance of its own for a rolling update"
        ) from None


def _locked(path: Path, operation: int) -> int:
    """Return a locked file that has this name; one that was removed meanwhile locks nobody out."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, operation)
            if _is_named(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
