"""Let one process of this host do something at a time."""

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, waiting: str) -> Iterator[None]:
    """Hold a lock; the kernel frees the lock of a killed process.

    Args:
        path: the lock's file, made when absent.
        waiting: what is said once if another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Tell whether a process holds a lock now."""
    try:
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
