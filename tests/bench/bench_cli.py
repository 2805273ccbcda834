"""How long the CLI takes, as people start it: `make bench-cli`. Reports; asserts nothing.

Targets: --help 150 ms, one Deployment 350 ms, 10,000 files of which one in twenty is legacy 15 s of
one core and 200 MiB, and 20 times faster than reading and writing every file with a round-trip
library in the same run. Byte code is there, as pip leaves it.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML

from tests.bench.cli_repository import write_repository

FILES, ONE_IN, SAMPLE, ROUNDS = 10_000, 20, 100, 15
KIBIBYTES = 1024


def main() -> None:
    """Measure and print, line by line."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "repository")
        write_repository(root, files=FILES, one_in=ONE_IN)
        plain = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        compiled = {**plain, "PYTHONPYCACHEPREFIX": str(Path(directory, "compiled"))}
        one = root / "team-0" / "service-0.yaml"
        convert = ("-m", "hami_dra.cli", "convert", "-f", str(one))
        _print("load of this machine", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        _print("python -c pass", _milliseconds(compiled, "-c", "pass"))
        _print("--help", _milliseconds(compiled, "-m", "hami_dra.cli", "--help"))
        _print("convert one Deployment", _milliseconds(compiled, *convert))
        ours, peak = _repository(root)
        _print(f"convert {FILES} files, one in {ONE_IN} legacy", f"{ours:.1f} s of CPU")
        _print("  most memory", f"{peak:.0f} MiB")
        theirs = _cpu(sorted(root.rglob("*.yaml"))[:SAMPLE]) * FILES / SAMPLE
        _print(f"  round trip of all (from {SAMPLE})", f"{theirs:.1f} s of CPU")
        _print("  ratio", f"{theirs / ours:.0f}")


def _print(what: str, found: str) -> None:
    print(f"{what:<44}{found}", flush=True)


def _milliseconds(environment: Mapping[str, str], *arguments: str) -> str:
    """Return median wall time and CPU time of a command, started once more than it is measured."""
    walls, cpus, peak = [], [], 0.0
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        usage = _run(environment, *arguments)
        walls.append(time.perf_counter() - start)
        cpus.append(usage.ru_utime + usage.ru_stime)
        peak = max(peak, usage.ru_maxrss / KIBIBYTES)
    wall, cpu = (statistics.median(each[1:]) * 1000 for each in (walls, cpus))
    return f"{wall:.0f} ms ({cpu:.0f} ms of CPU, {peak:.0f} MiB)"


def _repository(root: Path) -> tuple[float, float]:
    """Return seconds of CPU and MiB of a conversion of a whole directory."""
    usage = _run(os.environ, "-m", "hami_dra.cli", "convert", "-R", "-f", str(root))
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / KIBIBYTES


def _run(environment: Mapping[str, str], *arguments: str) -> resource.struct_rusage:
    """Run Python to its end and return what it took."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, env=dict(environment)
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return usage


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
