"""What the processes of a claim hold and do, by card. Pure, apart from what is remembered.

Two know of it. The library books every allocation at once; the driver, whose numbers the agent
writes into `control`, knows what no library sees, such as contexts and modules. As in the library
itself, the driver's number of a process counts when it is the larger one.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hami_dra.monitor.claims import ClaimReading
from hami_dra.node.limits import PROCESS_GONE, Control, DeviceUsage, DriverUsage, ProcessUsage

_NS: Final = 10**9
_SHORTEST_NS: Final = _NS
"""Between two measurements that are compared; the agent's own samples are a sixth of a second."""

_STALE_NS: Final = 10 * _NS
"""After which the agent does not measure any more; it does so every second."""

_ALL: Final = 100.0
_LARGEST: Final = 2**53
"""Up to which a floating-point number is exact; a container may have written any other one."""

Key: TypeAlias = tuple[str, str]
"""A claim's UID and a card's UUID."""


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that the processes of a claim hold on one card.

    Attributes:
        buffer_bytes: what they asked for.
        context_bytes: contexts, modules and all else that only the driver sees.
        processes: how many there are.
    """

    buffer_bytes: int = 0
    context_bytes: int = 0
    processes: int = 0

    @property
    def total_bytes(self) -> int:
        """Return all that counts against the limit."""
        return self.buffer_bytes + self.context_bytes


def held(claim: ClaimReading, number: int) -> Held | None:
    """Add up what a claim's processes hold on its card with a number; None if that is not known."""
    if claim.processes is None or claim.control is None:
        return None
    buffers = contexts = 0
    living = [each for each in claim.processes if not _has_ended(claim.control, each)]
    for process in living:
        booked = process.devices[number]
        ours = booked.total_bytes - booked.context_bytes
        told = _told(claim.control, process, number)
        buffers += ours
        contexts += max(told - ours, 0) if told else booked.context_bytes
    return Held(buffers, contexts, len(living))


def _told(control: Control, process: ProcessUsage, number: int) -> int:
    """Return the driver's number of a process; 0 where the agent told none."""
    told = _entry(control, process)
    return told.used_bytes[number] if told else 0


def _has_ended(control: Control, process: ProcessUsage) -> bool:
    """Tell whether the agent saw a process end; the library drops it when it looks next."""
    told = _entry(control, process)
    return told is not None and told.host_pid == PROCESS_GONE


def _entry(control: Control, process: ProcessUsage) -> DriverUsage | None:
    told: DriverUsage | None = control.processes.get(process.slot)
    if told is None or (told.pid, told.start_time) != (process.pid, process.start_time):
        return None
    return told


@dataclass(slots=True)
class _Busy:
    busy_ns: int
    at_ns: int
    percent: float | None = None


class Shares:
    """How much of a card's time each claim took between two looks that are a second apart."""

    def __init__(self) -> None:
        self._seen: dict[Key, _Busy] = {}

    def percent(self, claim: ClaimReading, number: int, now_ns: int) -> float | None:
        """Return a claim's share of a card's time, 0 to 100; None while that is not known.

        Args:
            claim: as it was read now.
            number: of the card in the claim.
            now_ns: CLOCK_MONOTONIC, by which the agent notes when it measured.
        """
        control = claim.control
        if control is None or claim.processes is None:
            return None
        device = control.devices[number]
        key = claim.record.uid, device.uuid
        at_ns = control.measured_at_ns
        if not claim.processes or not at_ns or now_ns - at_ns > _STALE_NS:
            # What comes after a pause is not spread over it.
            self._seen.pop(key, None)
            return None if claim.processes else 0.0
        before = self._seen.get(key)
        if before is None or device.busy_ns < before.busy_ns or at_ns < before.at_ns:
            self._seen[key] = _Busy(device.busy_ns, at_ns)
            return None
        if (passed := at_ns - before.at_ns) >= _SHORTEST_NS:
            spent = device.busy_ns - before.busy_ns
            self._seen[key] = _Busy(device.busy_ns, at_ns, min(_ALL, _ALL * spent / passed))
        return self._seen[key].percent

    def forget_all_but(self, uids: Collection[str]) -> None:
        """Forget claims that are not on this node any more."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in uids}


@dataclass(frozen=True, slots=True)
class Counted:
    """What only grows.

    Attributes:
        refusals: allocations that a limit refused.
        throttled_ns: time that launches were held back.
    """

    refusals: int = 0
    throttled_ns: int = 0


_Process: TypeAlias = tuple[int, int, int]
"""Slot, id and start of one process of a claim."""


class Counts:
    """Adds up what processes count, beyond their ends."""

    def __init__(self) -> None:
        self._sums: dict[Key, Counted] = {}
        self._seen: dict[Key, dict[_Process, Counted]] = {}

    def counted(self, claim: ClaimReading, number: int) -> Counted:
        """Return what the claim's processes counted on a card since it was first looked at."""
        if claim.control is None:
            return Counted()
        key = claim.record.uid, claim.control.devices[number].uuid
        total = self._sums.get(key, Counted())
        if claim.processes is None:
            return total
        before, now = self._seen.get(key, {}), dict[_Process, Counted]()
        for process in claim.processes:
            identity = process.slot, process.pid, process.start_time
            now[identity] = _bounded(process.devices[number])
            total = _grown(total, before.get(identity, Counted()), now[identity])
        self._sums[key], self._seen[key] = total, now
        return total

    def forget_all_but(self, uids: Collection[str]) -> None:
        """Forget claims that are not on this node any more."""
        self._sums = {key: value for key, value in self._sums.items() if key[0] in uids}
        self._seen = {key: value for key, value in self._seen.items() if key[0] in uids}


def _bounded(device: DeviceUsage) -> Counted:
    return Counted(min(device.refusals, _LARGEST), min(device.throttled_ns, _LARGEST))


def _grown(total: Counted, before: Counted, now: Counted) -> Counted:
    """Add what was counted since; a count that a container set back adds nothing."""
    return Counted(
        min(total.refusals + max(now.refusals - before.refusals, 0), _LARGEST),
        min(total.throttled_ns + max(now.throttled_ns - before.throttled_ns, 0), _LARGEST),
    )


def measured_age_s(claims: Iterable[ClaimReading], now_ns: int) -> float | None:
    """Return the age of the agent's newest measurement; None where it never made one."""
    measured = [claim.control.measured_at_ns for claim in claims if claim.control]
    newest = max(measured, default=0)
    return max(0.0, (now_ns - newest) / _NS) if newest else None
