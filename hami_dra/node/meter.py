"""Measure what processes do on NVIDIA's cards, by their ids on the node.

The driver samples by itself, several times a second; what it saw since the last question is asked
for, and a process's share of a sample counts for the time that the sample covers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_NS_OF_US: Final = 1000
_PERCENT: Final = 100
# Samples further apart than this are of two bursts of work with nothing between.
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


class Meter:
    """The processes of one node's cards; for one thread.

    Args:
        nvml: NVIDIA's binding, opened.
    """

    def __init__(self, nvml: Any) -> None:  # noqa: ANN401 - an untyped binding
        self._nvml = nvml
        self._seen_us: dict[str, int] = {}

    def measure(self, uuid: str) -> Mapping[int, Measured]:
        """Return what each process did on a card, by process id.

        Raises:
            nvml.NVMLError: if the driver does not tell of single processes, as for partitioned
                cards; then nothing may be said of any of them.
        """
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        running = {
            int(each.pid): int(each.usedGpuMemory or 0)
            for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        busy = self._busy(uuid, handle)
        return {pid: Measured(busy.get(pid, 0), used) for pid, used in running.items()}

    def _busy(self, uuid: str, handle: object) -> Mapping[int, int]:
        """Add up what was sampled since the last time."""
        since = self._seen_us.get(uuid, 0)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self._nvml.NVMLError_NotFound:
            return {}  # nobody did anything
        busy: dict[int, int] = {}
        ended: dict[int, int] = {}
        for sample in sorted(samples, key=lambda each: int(each.timeStamp)):
            pid, end = int(sample.pid), int(sample.timeStamp)
            begin = max(ended.get(pid, since), end - _LONGEST_SAMPLE_US)
            ended[pid] = end
            # The first question is answered with the past, which was before anybody counted.
            if since and end > begin:
                spent = (end - begin) * _NS_OF_US * int(sample.smUtil) // _PERCENT
                busy[pid] = busy.get(pid, 0) + spent
        self._seen_us[uuid] = max(ended.values(), default=since)
        return busy
