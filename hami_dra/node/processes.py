"""Find processes of containers among those of the node.

A container knows its processes by ids of its own namespace. Here they are known by the inode of
that namespace and the id in it, as the container's own `/proc/self/ns/pid` and `getpid()` tell.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
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
            name = Name(_namespace(home), _ids(home)[-1])
            found[name] = Host(pid, _start_time(home))
        except PermissionError:
            hidden.add(pid)
        except (OSError, ValueError):
            continue  # it has ended
    return found, frozenset(hidden)


def ended(proc: Path, started: Mapping[Name, int]) -> frozenset[Name]:
    """Return those that are no processes of the node any more.

    A process that took the name of one that ended counts as that one: whoever shares its namespace
    tells them apart. So does one that may not be looked at and could be it.

    Args:
        proc: where the node's processes show.
        started: when those began that are looked for, as `Host.start_time`.
    """
    namespaces = {name.namespace for name in started}
    alive: set[Name] = set()
    for pid in _pids(proc):
        home = proc / pid
        try:
            namespace = _namespace(home)
            if namespace in namespaces:
                alive.add(Name(namespace, _ids(home)[-1]))
        except PermissionError:
            alive |= _could_be(home, started)
        except (OSError, ValueError):
            continue  # it has ended meanwhile
    return frozenset(started) - alive


def _could_be(home: Path, started: Mapping[Name, int]) -> set[Name]:
    """Return what a process that hides its namespace could be called; the rest anybody may read."""
    try:
        ids, start_time = _ids(home), _start_time(home)
    except (OSError, ValueError):
        return set()  # it has ended
    is_of_the_node = len(ids) == 1
    return {
        name
        for name, began in started.items()
        if (name.pid, began) == (ids[-1], start_time)
        and (name.namespace == _INITIAL_NAMESPACE) == is_of_the_node
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


def _ids(home: Path) -> list[int]:
    """Return a process's id in each namespace that it is in, the node's first.

    Raises:
        OSError: if it has ended.
        ValueError: if that is not told.
    """
    for line in (home / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return [int(each) for each in line.split()[1:]]
    raise ValueError("found no NSpid")


def _start_time(home: Path) -> int:
    """Return when a process began, in ticks since the boot.

    Raises:
        OSError: if it has ended.
        ValueError: if that is not told.
    """
    fields = (home / "stat").read_text().rpartition(")")[2].split()
    # The text after the name begins with the third field.
    return int(fields[_START_TIME - 2])
