"""`make native-bench`: what an interposer costs on the fake driver, in alternating rounds in one run.

Prints a table, and with `--json` the numbers. `--library PATH` measures any other interposer beside ours;
`--holes` lists which ways to allocate stay open under a limit.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from hami_dra.node import limit_files
from hami_dra.node.limits import Control, DeviceLimit
from tests.native.conftest import NATIVE, UUIDS, Built, Container, compiler
from tests.native.test_memory import PATHS

_ROUNDS: Final = 5
_CORES_LIMITED: Final = 99
"""A share of the card is gated, and launches that cost nothing never spend it."""


def _setups(built: Built, other: Path | None) -> dict[str, tuple[str, int]]:
    setups = {
        "none": ("", 0),
        "ours": (str(built.library), 0),
        "ours, cores limited": (str(built.library), _CORES_LIMITED),
    }
    return setups | ({other.name: (str(other), 0)} if other else {})


def _measure(container: Container, program: Path, preload: str, cores: int) -> dict[str, float]:
    limit = DeviceLimit(UUIDS[0], 1 << 34, core_percent=cores)
    control = container.claim(limit) / "control"
    process = container.start(
        [str(program)], LD_PRELOAD=preload, CUDA_DEVICE_MEMORY_LIMIT="16g", VGPU_FAKE_DEVICES="1"
    )
    while process.poll() is None:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        limit_files.update(control, Control((limit,), measured_at_ns=now))
        time.sleep(0.05)
    told, said = process.communicate()
    if process.returncode:
        raise SystemExit(f"the benchmark ended with {process.returncode}: {said}")
    measured: dict[str, float] = json.loads(told)
    return measured


def _table(medians: dict[str, dict[str, float]]) -> str:
    columns = list(medians)
    rows = [["", *columns]]
    for row in medians["none"]:
        values = [medians["none"][row]] + [
            medians[column][row] - medians["none"][row] for column in columns[1:]
        ]
        rows.append([row, f"{values[0]:.1f}", *(f"{value:+.1f}" for value in values[1:])])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


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


def main() -> None:
    """Build, measure in turn, and print what each interposer adds to no interposer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=Path, help="another interposer to measure beside ours")
    parser.add_argument("--holes", action="store_true", help="list ways to allocate instead")
    parser.add_argument("--json", action="store_true", help="print numbers for a program")
    arguments = parser.parse_args()
    built = Built(NATIVE / "build")
    make = ["make", "-s", "-C", str(NATIVE), f"CC={' '.join(compiler())}", "bench"]
    subprocess.run(make, check=True)
    with tempfile.TemporaryDirectory() as directory:
        container = Container(built, Path(directory))
        if arguments.holes:
            holes = _holes(container, str(arguments.library or built.library))
            print(json.dumps(holes, indent=2))
            return
        setups = _setups(built, arguments.library)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in setups}
        for _ in range(_ROUNDS):
            for name, (preload, cores) in setups.items():
                rounds[name].append(_measure(container, built.directory / "calls", preload, cores))
    medians = {
        name: {row: statistics.median(one[row] for one in each) for row in each[0]}
        for name, each in rounds.items()
    }
    print(json.dumps(medians, indent=2) if arguments.json else _table(medians))


if __name__ == "__main__":
    main()
