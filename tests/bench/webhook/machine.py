"""The machine that measures: what it is, which cores are used, and what else it does meanwhile."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_MIB: Final = 2**20
_IDLE: Final = (3, 4)  # columns of /proc/stat: idle, waiting for a device


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the two sides of a measurement run.

    Attributes:
        server: the core of whoever answers.
        load: the core of the load generator.
    """

    server: int
    load: int


def cores() -> Cores:
    """Choose the first and the last core that this process may use.

    Raises:
        ValueError: if there is one only.
    """
    found = sorted(os.sched_getaffinity(0))
    if len(found) < len(Cores.__slots__):
        raise ValueError("found one core, expected two: one for the server, one for the load")
    return Cores(found[0], found[-1])


def describe() -> str:
    """Say in one line what machine this is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line for line in lines if line.startswith("model name")), ": unknown CPU")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{model.partition(': ')[2]}, {os.cpu_count()} cores, {memory:.0f} GiB,"
        f" Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    )


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def busy_seconds() -> float:
    """Return the processor time that all processes of the machine have used."""
    columns = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(columns) - sum(columns[at] for at in _IDLE)) * _TICK_S


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB
