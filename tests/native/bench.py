"""`make native-bench`: what an interposer costs on the fake driver, in alternating rounds in one run.

Prints a table with the targets, and with `--json` the numbers. `--library PATH` measures any other
interposer beside ours; `--holes` lists which ways to allocate stay open under a limit; `--shares` shows how
close the share of compute comes to its limit.
"""

import argparse
import json
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hami_dra.node import limit_files
from hami_dra.node.limits import Control, DeviceLimit
from tests.native.conftest import NATIVE, UUIDS, Built, Container, compiler
from tests.native.shares import LOADS, Tenant, shares
from tests.native.test_memory import PATHS

_ROUNDS: Final = 5
_CORES_LIMITED: Final = 99
"""A share of the card is gated, and launches that cost nothing never spend it."""
_STARTS: Final = 300
_START_ROW: Final = "start without CUDA, us"
_INIT_ROW: Final = "open and cuInit, us"
_START_WAYS: Final = {_START_ROW: "one", _INIT_ROW: "init"}
_STARTS_ROW: Final = f"{_STARTS} starts at once, ms"
_TARGETS: Final = {
    "cuLaunchKernel, ns": 4.0,
    "cuLaunchKernel, 2 threads, ns": 4.0,
    "cuMemGetInfo, ns": 60.0,
    "dlsym of another name, ns": 5.0,
    "alloc and free, 1 live, ns": 120.0,
    "alloc and free, 1000 live, ns": 120.0,
    "alloc and free, 100000 live, ns": 120.0,
    _START_ROW: 50.0,
    _INIT_ROW: 200.0,
}
"""What ours may add at most, in the unit of the row."""
_LIMITED_TARGETS: Final = _TARGETS | {
    "cuLaunchKernel, ns": 15.0,
    "cuLaunchKernel, 2 threads, ns": 15.0,
}
_TOTAL_TARGETS: Final = {_STARTS_ROW: 1000.0}
"""What a row may come to in all."""
_SHARE_TOLERANCE: Final = 3.0
_TWO_SHARES_TOLERANCE: Final = 5.0

_Row = dict[str, float]


@dataclass(frozen=True)
class _Setup:
    preload: str
    at_start: str
    """The same as it ships: the other can be told where its claims are."""
    cores: int
    targets: dict[str, float]


def _setups(built: Built, other: Path | None) -> dict[str, _Setup]:
    start = str(built.directory / platform.machine() / "libvgpu.so")
    measured = str(built.directory / "measured" / "libvgpu.so")
    empty = str(built.directory / "empty.so")
    setups = {
        "none": _Setup("", "", 0, {}),
        "an empty one": _Setup(empty, empty, 0, {}),
        "ours": _Setup(measured, start, 0, _TARGETS),
        "ours, cores limited": _Setup(measured, start, _CORES_LIMITED, _LIMITED_TARGETS),
    }
    return setups | ({other.name: _Setup(str(other), str(other), 0, {})} if other else {})


def _told(process: subprocess.Popen[str]) -> Any:
    told, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"the benchmark ended with {process.returncode}: {said}")
    return json.loads(told)


def _started(container: Container, *way: str) -> Any:
    program = str(container.built.directory / "starts")
    variables = {"LD_PRELOAD": "", "CUDA_DEVICE_MEMORY_LIMIT": "16g", "VGPU_FAKE_DEVICES": "1"}
    return _told(container.start([program, *way], **variables))


def _measure_starts(container: Container, setups: dict[str, _Setup]) -> dict[str, _Row]:
    """Return the rows of starts; the setups take turns in each."""
    preloads = [setup.at_start for setup in setups.values()]
    rows = {row: _started(container, way, *preloads) for row, way in _START_WAYS.items()}
    rows[_STARTS_ROW] = [_started(container, "many", str(_STARTS), each) for each in preloads]
    return {name: {row: each[i] for row, each in rows.items()} for i, name in enumerate(setups)}


def _measure(container: Container, setup: _Setup) -> _Row:
    limit = DeviceLimit(UUIDS[0], 1 << 34, core_percent=setup.cores)
    control = container.claim(limit) / "control"
    process = container.start(
        [str(container.built.directory / "calls")],
        LD_PRELOAD=setup.preload,
        CUDA_DEVICE_MEMORY_LIMIT="16g",
        VGPU_FAKE_DEVICES="1",
    )
    while process.poll() is None:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        limit_files.update(control, Control((limit,), measured_at_ns=now))
        time.sleep(0.05)
    measured: _Row = _told(process)
    return measured


def _medians(container: Container, setups: dict[str, _Setup]) -> dict[str, _Row]:
    rounds: dict[str, list[_Row]] = {name: [] for name in setups}
    for number in range(_ROUNDS):
        print(f"round {number + 1} of {_ROUNDS}", file=sys.stderr)
        starts = _measure_starts(container, setups)
        for name, setup in setups.items():
            rounds[name].append(_measure(container, setup) | starts[name])
    return {
        name: {row: statistics.median(one[row] for one in each) for row in each[0]}
        for name, each in rounds.items()
    }


def _cells(row: str, name: str, setup: _Setup, medians: dict[str, _Row]) -> str:
    """Return what a setup adds, beside its target."""
    added = medians[name][row] - medians["none"][row]
    if name.startswith("ours") and row in _TOTAL_TARGETS:
        is_met = medians[name][row] <= _TOTAL_TARGETS[row]
        return f"{added:+.1f}, in all {'<=' if is_met else '>'} {_TOTAL_TARGETS[row]:g}"
    if row not in setup.targets:
        return f"{added:+.1f}"
    target = setup.targets[row]
    return f"{added:+.1f} {'<=' if added <= target else '> !'} {target:g}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _table(setups: dict[str, _Setup], medians: dict[str, _Row]) -> str:
    head = ["", *setups]
    rows = [
        [
            row,
            f"{value:.1f}",
            *(_cells(row, name, setups[name], medians) for name in list(setups)[1:]),
        ]
        for row, value in medians["none"].items()
    ]
    return _aligned([head, *rows])


def _holes(container: Container, preload: str) -> dict[str, str]:
    container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    words = {0: "granted", 2: "refused"}
    found = {}
    for path, call in PATHS.items():
        text = call.format(size="4000 * MIB")
        result: Any = container.run(
            f"cuda = Cuda(); tell({text})", LD_PRELOAD=preload, CUDA_DEVICE_MEMORY_LIMIT="1000m"
        )
        found[path] = words.get(result, f"answered {result}")
    return found


def _share_cases() -> Iterator[tuple[list[Tenant], bool, float, float]]:
    """Yield tenants, whether an agent measures, the tolerance, and seconds to look."""
    for is_measured in (True, False):
        for load in LOADS:
            # One kernel of 300 ms more or less should not count.
            seconds = 20 if load == LOADS[-1] else 6
            for percent in (10, 25, 50, 75):
                yield [Tenant(percent, load)], is_measured, _SHARE_TOLERANCE, seconds
    for large in LOADS[:3]:
        yield [Tenant(30, LOADS[0]), Tenant(70, large)], True, _TWO_SHARES_TOLERANCE, 10


def _print_shares(built: Built, directory: Callable[[], Path]) -> None:
    for tenants, is_measured, tolerance, seconds in _share_cases():
        got = shares(built, directory(), tenants, seconds=seconds, is_measured=is_measured)
        asked = [tenant.percent for tenant in tenants]
        is_met = all(abs(g - a) <= tolerance for g, a in zip(got, asked, strict=True))
        print(
            " + ".join(f"{tenant.percent}% {tenant.load}" for tenant in tenants),
            "measured" if is_measured else "timed",
            " + ".join(f"{share:.1f}" for share in got),
            f"within {tolerance:g}" if is_met else f"not within {tolerance:g} !",
            sep=", ",
            flush=True,
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, help="another interposer to measure beside ours")
    parser.add_argument("--holes", action="store_true", help="list ways to allocate instead")
    parser.add_argument(
        "--shares", action="store_true", help="measure shares of compute instead, in 8 minutes"
    )
    parser.add_argument("--json", action="store_true", help="print numbers for a program")
    return parser.parse_args()


def main() -> None:
    """Build, measure in turn, and print what each interposer adds to no interposer."""
    arguments = _arguments()
    built = Built(NATIVE / "build")
    tools = [f"CC={shlex.join(compiler())}", f"ZIG={shlex.join([sys.executable, '-m', 'ziglang'])}"]
    make = ["make", "-s", "-C", str(NATIVE), *tools, "releases", "bench"]
    subprocess.run(make, check=True)
    with tempfile.TemporaryDirectory() as directory:
        container = Container(built, Path(directory))
        if arguments.holes:
            holes = _holes(container, str(arguments.library or built.library))
            print(json.dumps(holes, indent=2))
            return
        if arguments.shares:
            _print_shares(built, lambda: Path(tempfile.mkdtemp(dir=directory)))
            return
        setups = _setups(built, arguments.library)
        medians = _medians(container, setups)
    print(json.dumps(medians, indent=2) if arguments.json else _table(setups, medians))


if __name__ == "__main__":
    main()
