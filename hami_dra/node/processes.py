"""Find processes of containers among those of the node.

A container knows its processes by ids of its own namespace. Here they are known by the inode of
that namespace and the id in it, as the container's own `/proc/self/ns/pid` and `getpid()` tell.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

_INITIAL_NAMESPACE: Final = 0xEFFFFFFC
_START_TIME: Final = 21  # the 22nd field of /proc/PID/stat, counted from the first


class Name(NamedTuple):
    """What a process is called in its container.

    Attributes:
        namespace: inode of its namespace of ids.
        pid: its id in there.
    """

    namespace: int
    pid: int


class Host(NamedTuple):
    """A process as the node knows it.

    Attributes:
        pid: its id on the node.
        start_time: field 22 of `/proc/PID/stat`.
    """

    pid: int
    start_time: int


def sees_all(proc: Path = Path("/proc")) -> bool:
    """Tell whether ids here are those of the node, as with hostPID: NVML speaks of no others."""
    try:
        return (proc / "self/ns/pid").stat().st_ino == _INITIAL_NAMESPACE
    except OSError:
        return False


def find(proc: Path, pids: Iterable[int]) -> tuple[Mapping[Name, Host], frozenset[int]]:
    """Find out what processes of the node are called inside of their containers.

    Returns:
        Those that were found, and the ids of those that nothing may be found out about.
    """
    found: dict[Name, Host] = {}
    hidden: set[int] = set()
    for pid in pids:
        home = proc / str(pid)
        try:
            namespace = _namespace(home)
            inner = _ids((home / "status").read_text())[-1]
            fields = (home / "stat").read_text().rpartition(")")[2].split()
        except PermissionError:
            hidden.add(pid)
            continue
        except (OSError, ValueError):
            continue  # it has ended
        # The text after the name begins with the third field.
        found[Name(namespace, inner)] = Host(pid, int(fields[_START_TIME - 2]))
    return found, frozenset(hidden)


def ended(proc: Path, names: Collection[Name]) -> frozenset[Name]:
    """Return those that are no processes of the node any more.

    A process that took the name of one that ended counts as that one, and so does one that may not
    be looked at and could be it.
    """
    namespaces = {name.namespace for name in names}
    alive: set[Name] = set()
    for pid in _pids(proc):
        home = proc / pid
        try:
            namespace = _namespace(home)
            if namespace in namespaces:
                alive.add(Name(namespace, _ids((home / "status").read_text())[-1]))
        except PermissionError:
            alive |= _could_be(home, names)
        except (OSError, ValueError):
            continue  # it has ended meanwhile
    return frozenset(names) - alive


def _could_be(home: Path, names: Collection[Name]) -> set[Name]:
    """Return what a process that hides its namespace could be called."""
    try:
        ids = _ids((home / "status").read_text())
    except (OSError, ValueError):
        return set()  # it has ended
    is_of_the_node = len(ids) == 1
    return {
        name
        for name in names
        if name.pid == ids[-1] and (name.namespace == _INITIAL_NAMESPACE) == is_of_the_node
    }


def _pids(proc: Path) -> Iterator[str]:
    with os.scandir(proc) as entries:
        yield from (entry.name for entry in entries if entry.name.isdecimal())


def _namespace(home: Path) -> int:
    """Return the inode of a process's namespace of ids.

    Raises:
        OSError: if it has ended.
    """
    try:
        return os.stat(f"{home}/ns/pid").st_ino  # noqa: PTH116 - of hundreds, each second
    except FileNotFoundError:
        # Its first thread may have ended before the others, and has no namespace then.
        return _namespace_of_threads(home)


def _namespace_of_threads(home: Path) -> int:
    for thread in sorted((home / "task").iterdir()):
        try:
            return (thread / "ns/pid").stat().st_ino
        except FileNotFoundError:
            continue
    raise ProcessLookupError(f"found no thread in {home}")


def _ids(status: str) -> list[int]:
    """Return a process's id in each namespace that it is in, the node's first."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return [int(each) for each in line.split()[1:]]
    raise ValueError("found no NSpid")
