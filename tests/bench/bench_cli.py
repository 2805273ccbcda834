"""How long the CLI takes, as people start it: `make bench-cli`. Reports; asserts nothing.

Targets: --help 150 ms, one Deployment 350 ms, 10,000 files of which one in twenty is legacy 15 s of
one core and 200 MiB, and 20 times faster than reading and writing every file with a round-trip
library in the same run.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML

from tests.bench.cli_repository import write_repository

FILES, ONE_IN, SAMPLE, ROUNDS = 10_000, 20, 100, 5
KIBIBYTES = 1024


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "repository")
        write_repository(root, files=FILES, one_in=ONE_IN)
        one = root / "team-0" / "service-0.yaml"
        print(f"{'python -c pass':<44}{_milliseconds('-c', 'pass')}")
        print(f"{'--help':<44}{_milliseconds('-m', 'hami_dra.cli', '--help')}")
        convert = ("-m", "hami_dra.cli", "convert", "-f", str(one))
        print(f"{'convert one Deployment':<44}{_milliseconds(*convert)}")
        ours, peak = _repository(root)
        print(f"{f'convert {FILES} files, one in {ONE_IN} legacy':<44}{ours:.1f} s of CPU")
        print(f"{'  most memory':<44}{peak:.0f} MiB")
        sample = sorted(root.rglob("*.yaml"))[:SAMPLE]
        theirs = _cpu(sample) * FILES / SAMPLE
        print(f"{f'  round trip of all (from {SAMPLE})':<44}{theirs:.1f} s of CPU")
        print(f"{'  ratio':<44}{theirs / ours:.0f}")


def _milliseconds(*arguments: str) -> str:
    """Return median wall time and CPU time of a command, started several times."""
    walls, cpus = [], []
    for _ in range(ROUNDS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    wall, cpu = statistics.median(walls) * 1000, statistics.median(cpus) * 1000
    return f"{wall:.0f} ms ({cpu:.0f} ms of CPU)"


def _repository(root: Path) -> tuple[float, float]:
    """Return seconds of CPU and MiB of a conversion of a whole directory."""
    command = [sys.executable, "-m", "hami_dra.cli", "convert", "-R", "-f", str(root)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / KIBIBYTES


def _round_trip(file: Path) -> None:
    yaml = YAML()
    for document in list(yaml.load_all(file.read_text())):
        yaml.dump(document, StringIO())


def _cpu(files: list[Path]) -> float:
    start = time.process_time()
    for file in files:
        _round_trip(file)
    return time.process_time() - start


if __name__ == "__main__":
    main()
