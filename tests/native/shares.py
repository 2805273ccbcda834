"""How close the share of compute comes to its limit on the real clock, for one container and for two.

A stand-in for the node agent measures the fake card ten times a second, or nobody does.
"""

import ctypes
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.node import limit_files
from hami_dra.node.limits import Control, DeviceLimit
from tests.native.conftest import UUIDS, Built, Container

_PERIOD_S: Final = 0.1
_LOADS: Final = {
    "kernels": (1_000_000, "while True: cuda.launch()"),
    "small kernels": (50_000, "while True: cuda.launch()"),
    "graphs": (100_000, "graph = cuda.graph(kernels=20)\nwhile True: cuda.launch_graph(graph)"),
    "one big kernel, then a wait": (
        300_000_000,
        "while True: cuda.launch(); cuda.call('cuCtxSynchronize')",
    ),
}
LOADS: Final = tuple(_LOADS)


@dataclass(frozen=True)
class Tenant:
    """A container that launches as fast as it may."""

    percent: int
    load: str


@dataclass
class _Running:
    container: Container
    limit: DeviceLimit
    process: subprocess.Popen[str]

    @property
    def control(self) -> Path:
        return self.container.claims / "one" / "control"


class _Card:
    """What the fake card says of its processes."""

    def __init__(self, built: Built, state: Path) -> None:
        # A copy, because a driver that is loaded already stays with the card it saw first.
        copy = shutil.copy(built.fake / "libcuda.so.1", state.parent)
        os.environ["VGPU_FAKE_STATE"] = str(state)
        self._driver = ctypes.CDLL(str(copy))
        self._driver.fake_process_busy_ns.restype = ctypes.c_uint64

    def busy_ns(self, process: subprocess.Popen[str]) -> int:
        return int(self._driver.fake_process_busy_ns(0, process.pid))


def _start(built: Built, directory: Path, number: int, tenant: Tenant) -> _Running:
    container = Container(built, directory / str(number))
    container.directory.mkdir()
    container.variables["VGPU_FAKE_STATE"] = str(directory / "cards")
    limit = DeviceLimit(UUIDS[0], None, core_percent=tenant.percent)
    container.claim(limit)
    kernel_ns, text = _LOADS[tenant.load]
    process = container.start(f"cuda = Cuda()\n{text}", VGPU_FAKE_KERNEL_NS=str(kernel_ns))
    return _Running(container, limit, process)


def _feed(card: _Card, running: _Running) -> None:
    busy = card.busy_ns(running.process)
    limit = DeviceLimit(UUIDS[0], None, core_percent=running.limit.core_percent, busy_ns=busy)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    limit_files.update(running.control, Control((limit,), measured_at_ns=now))


@contextmanager
def _agent(card: _Card, running: Sequence[_Running]) -> Iterator[None]:
    stopped = threading.Event()

    def measure() -> None:
        while not stopped.wait(_PERIOD_S):
            for one in running:
                _feed(card, one)

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def shares(
    built: Built, directory: Path, tenants: Sequence[Tenant], *, seconds: float, is_measured: bool
) -> list[float]:
    """Run tenants on one fake card and return the percentage of it that each got.

    Args:
        built: the library and the fake driver.
        directory: an empty one, for the files of claims and card.
        tenants: the containers.
        seconds: how long to look, after as long a start.
        is_measured: whether an agent measures.
    """
    running = [_start(built, directory, i, tenant) for i, tenant in enumerate(tenants)]
    card = _Card(built, directory / "cards")
    try:
        with _agent(card, running if is_measured else ()):
            time.sleep(seconds / 2)
            start = time.monotonic_ns()
            before = [card.busy_ns(one.process) for one in running]
            time.sleep(seconds)
            used = [card.busy_ns(one.process) - b for one, b in zip(running, before, strict=True)]
            elapsed = time.monotonic_ns() - start
    finally:
        for one in running:
            one.process.kill()
            one.process.communicate()
    return [100 * ns / elapsed for ns in used]
