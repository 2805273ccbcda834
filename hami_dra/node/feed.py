"""Tell the native library what its processes really did: GPU time, the driver's books, their ends.

The library guesses what a launch costs and what a context takes; with measurements in `control` its
long-run average is exact (ruling 39). Whoever cannot be measured is not written about: silence
makes the library measure by itself, and a wrong zero would lift its limit.

It also cannot see that a process of another namespace of ids has ended, as all of a container's
have that was restarted; until it is told, what they held counts against the claim.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from hami_dra.node import limit_files, processes, turns
from hami_dra.node.backend import BackendError
from hami_dra.node.limits import (
    PROCESS_GONE,
    Control,
    DamagedFileError,
    DriverUsage,
    ProcessUsage,
)
from hami_dra.node.meter import Measured
from hami_dra.node.processes import Host, Name

_log = logging.getLogger(__name__)

Measure: TypeAlias = Callable[[str], Mapping[int, Measured]]
"""Return what each process did on the card with this UUID, by its id on the node."""

_Measured: TypeAlias = Mapping[str, Mapping[int, Measured]]

_Identity: TypeAlias = tuple[Name, int]
"""A process and when it began."""

_BUSY_S: Final = 0.2
_CALM_S: Final = 1.0
_IDLE: Final = Measured()


@dataclass(frozen=True, slots=True)
class Fed:
    """A claim whose files are fed.

    Attributes:
        directory: of `control` and `usage`.
        control: its limits.
    """

    directory: Path
    control: Control


async def keep_feeding(feeder: "Feeder", claims: Callable[[], Sequence[Fed]], lock: Path) -> None:
    """Feed until cancelled, often while somebody computes, and never beside another agent.

    Each counts time from its own start. The library takes the difference of two numbers for time
    of the card, so with two that write in turn it would stop the claim's processes for it.

    Args:
        feeder: feeds.
        claims: return those to feed.
        lock: the file that tells which agent of this node feeds.
    """
    descriptor = await _turn(lock)
    try:
        while True:
            before = feeder.problem
            is_busy = await asyncio.to_thread(lambda: feeder.feed(claims()))
            if (now := feeder.problem) != before:
                _log.info("claims are not told what their processes do: %s", now or "now they are")
            await asyncio.sleep(_BUSY_S if is_busy else _CALM_S)
    finally:
        os.close(descriptor)


async def _turn(lock: Path) -> int:
    """Wait until no other agent of this node feeds; return the lock's descriptor."""
    while True:
        try:
            return turns.claim_for_life(lock)
        except turns.SecondAgentError:
            await asyncio.sleep(_CALM_S)


class Feeder:
    """Feeds claims; for one thread.

    Args:
        measure: asks the driver; None where there is none.
        proc: where the node's processes show.
        clock_ns: CLOCK_MONOTONIC, which containers share.
        now: seconds of any clock, by which looks at all processes of the node are spread.

    Attributes:
        problem: why cards did not tell of processes the last time; empty when all did.
    """

    def __init__(
        self,
        measure: Measure | None,
        *,
        proc: Path = Path("/proc"),
        clock_ns: Callable[[], int] = time.monotonic_ns,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measure = measure
        self._proc = proc
        self._clock_ns = clock_ns
        self._now = now
        self._spent_ns: dict[tuple[Path, str], int] = {}
        self._hidden: frozenset[int] = frozenset()
        self._is_told_of_hidden = False
        self._ended: dict[Path, Mapping[int, ProcessUsage]] = {}
        self._gone: set[_Identity] = set()
        self._looked_for: frozenset[Name] = frozenset()
        self._looked_at = 0.0
        self.problem = ""

    def feed(self, claims: Iterable[Fed]) -> bool:
        """Write into each claim what its processes did; return whether any did something.

        Of claims with a card that does not tell of processes, only who ended is written.
        """
        claims = tuple(claims)
        self._forget_all_but({claim.directory for claim in claims})
        busy = [_Busy(claim, found) for claim in claims if (found := _living(claim))]
        measured = self._measured(busy)
        hosts, hidden = processes.find(self._proc, _pids(measured))
        self._tell_hidden(hidden)
        self._look_for_ends(busy, hosts)
        for each in busy:
            self._write(each, measured, hosts)
        return any(done.busy_ns for pids in measured.values() for done in pids.values())

    def _forget_all_but(self, kept: Collection[Path]) -> None:
        self._spent_ns = {key: ns for key, ns in self._spent_ns.items() if key[0] in kept}
        self._ended = {path: names for path, names in self._ended.items() if path in kept}

    def _measured(self, busy: Iterable["_Busy"]) -> _Measured:
        """Ask the driver about the cards of claims; of none where there is no driver."""
        if self._measure is None:
            return {}
        found: dict[str, Mapping[int, Measured]] = {}
        problems: list[str] = []
        for uuid in sorted({uuid for each in busy for uuid in each.uuids}):
            try:
                found[uuid] = self._measure(uuid)
            except BackendError as error:
                # One card's trouble is no other's.
                problems.append(str(error))
        self.problem = "; ".join(problems)
        return found

    def _look_for_ends(self, busy: Iterable["_Busy"], hosts: Mapping[Name, Host]) -> None:
        """Look for those that hold nothing of a card and may have ended."""
        listed = {_identity(process) for each in busy for process in each.living}
        self._gone &= listed
        # A container that did not tell its namespace names nobody.
        unknown = {
            name: start_time
            for name, start_time in listed - self._gone
            if name.namespace and name not in hosts
        }
        now = self._now()
        if unknown.keys() - self._looked_for or now - self._looked_at > _CALM_S:
            gone = processes.ended(self._proc, unknown) if unknown else ()
            self._gone |= {(name, unknown[name]) for name in gone}
            self._looked_for, self._looked_at = frozenset(unknown), now

    def _write(self, busy: "_Busy", measured: _Measured, hosts: Mapping[Name, Host]) -> None:
        """Write what is known: who ended, and what the others did if all that is known."""
        directory = busy.claim.directory
        ended = {each.slot: each for each in busy.living if _identity(each) in self._gone}
        # Any hidden one may be the claim's, whose time would be told as none.
        is_measured = all(
            uuid in measured and self._hidden.isdisjoint(measured[uuid]) for uuid in busy.uuids
        )
        if not is_measured and ended == self._ended.get(directory, {}):
            return
        self._ended[directory] = ended
        told = {slot: _gone(process, len(busy.uuids)) for slot, process in ended.items()}
        if is_measured:
            known = busy.known(hosts)
            self._count(busy, [pid for _, pid in known], measured)
            told |= {each.slot: busy.told(each, pid, measured) for each, pid in known}
        control = replace(
            busy.claim.control,
            devices=tuple(
                replace(device, busy_ns=self._spent_ns.get((directory, device.uuid), 0))
                for device in busy.claim.control.devices
            ),
            processes=told,
            measured_at_ns=self._clock_ns() if is_measured else 0,
        )
        try:
            limit_files.update(directory / "control", control)
        except (OSError, DamagedFileError) as error:
            _log.info("control in %s not fed: %s", directory, error)

    def _count(self, busy: "_Busy", pids: Sequence[int], measured: _Measured) -> None:
        """Add up the time that processes took of the claim's cards."""
        for uuid in busy.uuids:
            key = busy.claim.directory, uuid
            spent = sum(measured[uuid].get(pid, _IDLE).busy_ns for pid in pids)
            self._spent_ns[key] = self._spent_ns.get(key, 0) + spent

    def _tell_hidden(self, hidden: frozenset[int]) -> None:
        if hidden and not self._is_told_of_hidden:
            self._is_told_of_hidden = True
            _log.warning(
                "found no right to look at the processes %s, expected the capability SYS_PTRACE:"
                " claims of their cards are not told what their processes do",
                sorted(hidden),
            )
        self._hidden = hidden


@dataclass(frozen=True, slots=True)
class _Busy:
    """A claim that has processes.

    Attributes:
        claim: the claim.
        living: those that the library counts, of which some may have ended.
    """

    claim: Fed
    living: tuple[ProcessUsage, ...]

    @property
    def uuids(self) -> list[str]:
        """Return its cards, in the order of its files."""
        return [device.uuid for device in self.claim.control.devices]

    def told(self, process: ProcessUsage, pid: int, measured: _Measured) -> DriverUsage:
        """Return what the driver says of one of its processes."""
        used = [measured[uuid].get(pid, _IDLE).used_bytes for uuid in self.uuids]
        return DriverUsage(process.pid, pid, process.start_time, used)

    def known(self, hosts: Mapping[Name, Host]) -> list[tuple[ProcessUsage, int]]:
        """Return those that were found on the node, each with its id there."""
        return [
            (process, host.pid)
            for process in self.living
            if (host := hosts.get(_name(process))) and host.start_time == process.start_time
        ]


def _living(claim: Fed) -> tuple[ProcessUsage, ...]:
    try:
        return limit_files.read_usage(claim.directory / "usage", len(claim.control.devices))
    except (OSError, DamagedFileError):
        return ()  # it ends just now, or its container spoilt it, which hurts nobody else


def _name(process: ProcessUsage) -> Name:
    return Name(process.pid_namespace, process.pid)


def _identity(process: ProcessUsage) -> _Identity:
    return _name(process), process.start_time


def _pids(measured: _Measured) -> set[int]:
    return {pid for pids in measured.values() for pid in pids}


def _gone(process: ProcessUsage, devices: int) -> DriverUsage:
    """Say that a process has ended."""
    return DriverUsage(process.pid, PROCESS_GONE, process.start_time, [0] * devices)
