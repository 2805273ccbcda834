"""What strangers write, under libFuzzer: the readers of both shared files and of HAMi's variables.

Coverage guides it, and a number of runs ends it: `make native-fuzz` asks for more of them, goes other
ways each time and begins with what it found before. The agent's reader gets what was found too.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from hami_dra.node import limits
from hami_dra.node.limits import Control, DamagedFileError, DeviceLimit, DriverUsage
from tests.native import tools
from tests.native.conftest import NATIVE, UUIDS, Container, make

_LONGEST_BYTES: Final = 12_000
"""Of an input: the header, all devices and two slots of the larger file."""
_RUNS: Final = {"environment": 200_000, "control": 50_000, "usage": 50_000}
_HANG_S: Final = 20
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own in it

_TEXTS: Final = (
    "1024", "512m", "16Gi", "15360MB", "4g", "1t", "010", "100b", "18446744073709551614",
    "m", "-1", " 1", "0x10", "1.5g", "1gg", "99999999999999999999", "17179869184g", "0", "",
)  # fmt: skip


def _environments() -> list[bytes]:
    rest = ("50", "101", "force", "1", " 2 , 1")
    return ["\0".join((text, "512m", *rest)).encode() for text in _TEXTS]


def _controls() -> list[bytes]:
    whole = Control(
        tuple(DeviceLimit(uuid, 1000 << 20, core_percent=50) for uuid in UUIDS),
        generation=2,
        feed_sequence=4,
        measured_at_ns=9,
        processes={0: DriverUsage(5, limits.PROCESS_GONE, 50, (500, 501))},
    )
    small = Control((DeviceLimit(UUIDS[0], None),))
    return [limits.encode_control(control) for control in (whole, small)]


def _usages(container: Container) -> list[bytes]:
    """What a real process left, and what the agent makes."""
    path = container.claim(*(DeviceLimit(uuid, 1000 << 20) for uuid in UUIDS)) / "usage"
    fresh = path.read_bytes()
    container.run("Cuda().alloc(MIB)")
    return [fresh, path.read_bytes()]


def _short(seed: bytes) -> bytes:
    """The target puts the zeros back that are cut off here; it takes an odd length for the end."""
    cut = seed.rstrip(b"\0")[:_LONGEST_BYTES]
    return cut + bytes(len(cut) % 2)


def _built(reader: str) -> Path:
    clang = shlex.join([sys.executable, "-m", "ziglang", "cc"])
    runtime = shlex.join(map(str, tools.fuzzer()))
    make(f"CC={clang}", f"MACHINE={tools.HOST}", f"FUZZER={runtime}", "fuzz")
    return NATIVE / "build" / "fuzz" / reader


def _fuzz(reader: str, corpus: Path, directory: Path, more_runs: int | None) -> str:
    """Run the target; returns how it ended, and the file that holds the input of a failure."""
    runs, seed = (more_runs, 0) if more_runs else (_RUNS[reader], 1)
    in_memory = _MEMORY if os.access(_MEMORY, os.W_OK) else directory
    limits_of_it = (
        f"-max_len={_LONGEST_BYTES}",
        f"-timeout={_HANG_S}",
        "-rss_limit_mb=512",
        f"-artifact_prefix={corpus}.",
    )
    # Each input is a file of its own, and files on a disk take ten times as long.
    with tempfile.TemporaryDirectory(dir=in_memory) as where:
        ran = subprocess.run(
            [_built(reader), *limits_of_it, f"-runs={runs}", f"-seed={seed}", corpus],
            cwd=where,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    is_done = ran.returncode == 0 and f"Done {runs} runs" in ran.stderr
    return "done" if is_done else f"exit code {ran.returncode}: {ran.stderr[-4000:]}"


def _is_read_by_the_agent(reader: str, found: bytes) -> None:
    size = {"control": limits.CONTROL_BYTES, "usage": limits.USAGE_BYTES}[reader]
    data = found if len(found) % 2 else found.ljust(size, b"\0")
    try:
        if reader == "control":
            limits.decode_control(data)
        else:
            for process in limits.decode_usage(data, len(UUIDS)):
                assert process.devices[0].total_bytes >= 0
    except DamagedFileError:
        pass


@pytest.mark.parametrize("reader", _RUNS)
def test_no_content_ends_or_misleads_a_reader(
    container: Container, request: pytest.FixtureRequest, reader: str
) -> None:
    more_runs: int | None = request.config.getoption("--fuzz-runs")
    # Hidden, as it may hold anything: codespell reads what is not.
    home = NATIVE / "build" / ".corpus" if more_runs else container.directory
    corpus = home / f"{reader}-corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = {"environment": _environments, "control": _controls}
    given = seeds[reader]() if reader in seeds else _usages(container)
    for number, seed in enumerate(given):
        text = seed if reader == "environment" else _short(seed)
        (corpus / f"seed-{number}").write_bytes(text)

    assert _fuzz(reader, corpus, container.directory, more_runs) == "done"

    found = [path.read_bytes() for path in corpus.iterdir()]
    assert len(found) > len(given)
    if reader != "environment":
        for data in found:
            _is_read_by_the_agent(reader, data)
