"""Measure what processes do on NVIDIA's cards, by their ids on the node.

The driver samples by itself, several times a second; what it saw since the last question is asked
for, and a process's share of a sample counts for the time that the sample covers.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_NS_OF_US: Final = 1000
_PERCENT: Final = 100
# Samples further apart than this are of two bursts of work with nothing between. One that lies
# further ahead than this was taken before the clock was set back.
_LONGEST_SAMPLE_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Measured:
    """What one process did on one card.

    Attributes:
        busy_ns: time of the card since the last measurement.
        used_bytes: device memory that it holds now, by the driver's books.
    """

    busy_ns: int = 0
    used_bytes: int = 0


def _now_us() -> int:
    return time.time_ns() // 1000


class Meter:
    """The processes of one node's cards; for one thread.

    Args:
        nvml: NVIDIA's binding, opened.
        now_us: microseconds since 1970, by which the driver dates its samples.
    """

    def __init__(
        self,
        nvml: Any,  # noqa: ANN401 - an untyped binding
        *,
        now_us: Callable[[], int] = _now_us,
    ) -> None:
        self._nvml = nvml
        self._now_us = now_us
        self._seen_us: dict[str, int] = {}

    def measure(self, uuid: str) -> Mapping[int, Measured]:
        """Return what each process did on a card, by process id.

        Raises:
            nvml.NVMLError: if the driver does not tell of single processes, as for partitioned
                cards; then nothing may be said of any of them.
        """
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        running = {int(each.pid): int(each.usedGpuMemory or 0) for each in self._running(handle)}
        busy = self._busy(uuid, handle)
        return {pid: Measured(busy.get(pid, 0), used) for pid, used in running.items()}

    def _running(self, handle: object) -> Sequence[Any]:
        """Return the processes that have a context, as the driver knows to tell of them."""
        nvml = self._nvml
        try:
            return list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        except nvml.NVMLLibraryMismatchError:
            # A driver before 510; the binding's error for that is none of its NVML errors.
            return list(nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle))

    def _busy(self, uuid: str, handle: object) -> Mapping[int, int]:
        """Add up what was sampled since the last time."""
        latest = self._now_us() + _LONGEST_SAMPLE_US
        since = self._seen_us.get(uuid, 0)
        if since > latest:
            # The clock was set back. The driver would answer with nothing until it has caught up,
            # and a time told as none lifts a limit.
            self._seen_us[uuid] = since = latest - _LONGEST_SAMPLE_US
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self._nvml.NVMLError_NotFound:
            return {}  # nobody did anything
        busy: dict[int, int] = {}
        ended: dict[int, int] = {}
        for sample in sorted(samples, key=lambda each: int(each.timeStamp)):
            pid, end = int(sample.pid), int(sample.timeStamp)
            if end > latest:
                continue
            begin = max(ended.get(pid, since), end - _LONGEST_SAMPLE_US)
            ended[pid] = end
            # The first question is answered with the past, which was before anybody counted.
            if since and end > begin:
                # Drivers have told more than all of the card.
                percent = min(int(sample.smUtil), _PERCENT)
                spent = (end - begin) * _NS_OF_US * percent // _PERCENT
                busy[pid] = busy.get(pid, 0) + spent
        self._seen_us[uuid] = max(ended.values(), default=since)
        return busy
