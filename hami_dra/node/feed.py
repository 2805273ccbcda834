"""Tell the native library what its processes really did: their GPU time and the driver's books.

The library guesses what a launch costs and what a context takes; with measurements in `control` its
long-run average is exact (ruling 39). Whoever cannot be measured is not written about: silence
makes the library measure by itself, and a wrong zero would lift its limit.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from hami_dra.node import limit_files
from hami_dra.node.backend import BackendError
from hami_dra.node.limits import Control, DamagedFileError, DriverUsage, ProcessUsage
from hami_dra.node.meter import Measured

_log = logging.getLogger(__name__)

Measure: TypeAlias = Callable[[str], Mapping[int, Measured]]
"""Return what each process did on the card with this UUID, by its id on the node."""

_Identity: TypeAlias = tuple[int, int, int]
"""A process as its container sees it: inode of its namespace of ids, id, and time of start."""

_BUSY_S: Final = 0.2
_CALM_S: Final = 1.0
_IDLE: Final = Measured()
_INITIAL_NAMESPACE: Final = 0xEFFFFFFC
_START_TIME: Final = 21  # the 22nd field of /proc/PID/stat, counted from the first


@dataclass(frozen=True, slots=True)
class Fed:
    """A claim whose files are fed.

    Attributes:
        directory: of `control` and `usage`.
        control: its limits.
    """

    directory: Path
    control: Control


def sees_all_processes(proc: Path = Path("/proc")) -> bool:
    """Tell whether ids here are those of the node, as with hostPID: NVML speaks of no others."""
    try:
        return (proc / "self/ns/pid").stat().st_ino == _INITIAL_NAMESPACE
    except OSError:
        return False


async def keep_feeding(feeder: "Feeder", claims: Callable[[], Sequence[Fed]]) -> None:
    """Feed until cancelled, often while somebody computes."""
    problem = ""
    while True:
        is_busy, before = False, problem
        try:
            is_busy = await asyncio.to_thread(lambda: feeder.feed(claims()))
            problem = ""
        except BackendError as error:
            problem = str(error)
        if problem != before:
            _log.info("claims are not told what their processes do: %s", problem or "now they are")
        await asyncio.sleep(_BUSY_S if is_busy else _CALM_S)


class Feeder:
    """Feeds claims; for one thread.

    Args:
        measure: asks the driver.
        proc: where the node's processes show.
        clock_ns: CLOCK_MONOTONIC, which containers share.
    """

    def __init__(
        self,
        measure: Measure,
        *,
        proc: Path = Path("/proc"),
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._measure = measure
        self._proc = proc
        self._clock_ns = clock_ns
        self._spent_ns: dict[tuple[Path, str], int] = {}
        self._hidden: frozenset[int] = frozenset()

    def feed(self, claims: Iterable[Fed]) -> bool:
        """Write into each claim what its processes did; return whether any did something.

        Raises:
            BackendError: if the driver cannot tell of processes; nothing is written then.
        """
        claims = tuple(claims)
        kept = {claim.directory for claim in claims}
        self._spent_ns = {key: ns for key, ns in self._spent_ns.items() if key[0] in kept}
        busy = [(claim, found) for claim in claims if (found := _processes(claim))]
        uuids = {device.uuid for claim, _ in busy for device in claim.control.devices}
        measured = {uuid: self._measure(uuid) for uuid in sorted(uuids)}
        hosts, hidden = self._hosts({pid for pids in measured.values() for pid in pids})
        self._tell_hidden(hidden)
        for claim, processes in busy:
            # Any of them may be the claim's, whose time would be told as none.
            if all(hidden.isdisjoint(measured[device.uuid]) for device in claim.control.devices):
                self._write(claim, processes, measured, hosts)
        return any(done.busy_ns for pids in measured.values() for done in pids.values())

    def _write(
        self,
        claim: Fed,
        processes: Sequence[ProcessUsage],
        measured: Mapping[str, Mapping[int, Measured]],
        hosts: Mapping[_Identity, int],
    ) -> None:
        devices = claim.control.devices
        known = {
            process.slot: (process, pid)
            for process in processes
            if (pid := hosts.get((process.pid_namespace, process.pid, process.start_time)))
        }
        for device in devices:
            key, done = (claim.directory, device.uuid), measured[device.uuid]
            busy = sum(done.get(pid, _IDLE).busy_ns for _, pid in known.values())
            self._spent_ns[key] = self._spent_ns.get(key, 0) + busy
        told = {
            slot: DriverUsage(
                pid=process.pid,
                host_pid=pid,
                start_time=process.start_time,
                used_bytes=[measured[device.uuid].get(pid, _IDLE).used_bytes for device in devices],
            )
            for slot, (process, pid) in known.items()
        }
        control = replace(
            claim.control,
            devices=tuple(
                replace(device, busy_ns=self._spent_ns[claim.directory, device.uuid])
                for device in devices
            ),
            processes=told,
            measured_at_ns=self._clock_ns(),
        )
        try:
            limit_files.update(claim.directory / "control", control)
        except (OSError, DamagedFileError) as error:
            _log.info("control in %s not fed: %s", claim.directory, error)

    def _tell_hidden(self, hidden: frozenset[int]) -> None:
        if hidden - self._hidden:
            _log.warning(
                "found no right to look at the processes %s, expected the capability SYS_PTRACE:"
                " claims of their cards are not told what their processes do",
                sorted(hidden),
            )
        self._hidden = hidden

    def _hosts(self, pids: Iterable[int]) -> tuple[Mapping[_Identity, int], frozenset[int]]:
        """Find out what processes of the node are called inside of their containers.

        Those that nothing may be found out about are returned beside.
        """
        found: dict[_Identity, int] = {}
        hidden: set[int] = set()
        for pid in pids:
            home = self._proc / str(pid)
            try:
                namespace = (home / "ns/pid").stat().st_ino
                inner = _inner_pid((home / "status").read_text())
                fields = (home / "stat").read_text().rpartition(")")[2].split()
            except PermissionError:
                hidden.add(pid)
                continue
            except (OSError, ValueError):
                continue  # it has ended
            # The text after the name begins with the third field.
            found[namespace, inner, int(fields[_START_TIME - 2])] = pid
        return found, frozenset(hidden)


def _processes(claim: Fed) -> tuple[ProcessUsage, ...]:
    try:
        return limit_files.read_usage(claim.directory / "usage", len(claim.control.devices))
    except (OSError, DamagedFileError):
        return ()  # it ends just now, or its container spoilt it, which hurts nobody else


def _inner_pid(status: str) -> int:
    """Return the id in the innermost namespace, which NSpid names last."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise ValueError("found no NSpid")
