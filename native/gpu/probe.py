"""Measurements on a real GPU for check.sh, by the CUDA driver and Python alone.

Each command prints one line. It runs with or without libvgpu.so preloaded.
"""

import ctypes
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

# One thread counts down: fixed work, whose time shows how much of the GPU a process got.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 turns)
{
    .reg .u64 %left;
    .reg .pred %more;
    ld.param.u64 %left, [turns];
again:
    add.u64 %left, %left, -1;
    setp.ne.u64 %more, %left, 0;
    @%more bra again;
    ret;
}
"""
OK = 0
MIB = 1 << 20
LAUNCHES_AHEAD = 500


class Gpu:
    """The first GPU, with its primary context current."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function that must succeed."""
        result = getattr(self.driver, name)(*arguments)
        if result != OK:
            raise SystemExit(f"{name} answered {result}")

    def alloc(self, size: int) -> tuple[int, int]:
        """Return the result and the address."""
        address = ctypes.c_uint64()
        result = self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        return result, address.value

    def info(self) -> tuple[int, int]:
        """Return free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def used(self) -> int:
        """Return bytes in use, as CUDA says it."""
        free, total = self.info()
        return total - free

    def kernel(self) -> Callable[..., None]:
        """Return a function that starts a kernel of so many turns in a stream."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), PTX)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"spin")

        def launch(turns: int, stream: Any = None) -> None:
            value = ctypes.c_uint64(turns)
            parameters = (ctypes.c_void_p * 1)(ctypes.addressof(value))
            self.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)

        return launch

    def wait(self) -> None:
        """Wait until the GPU has done all."""
        self.call("cuCtxSynchronize")


def turns_of_a_ms(gpu: Gpu, launch: Callable[..., None]) -> int:
    """Return how many turns take a millisecond, measured without a limit."""
    launch(1 << 20)
    gpu.wait()
    start = time.monotonic()
    launch(1 << 26)
    gpu.wait()
    return int((1 << 26) / ((time.monotonic() - start) * 1000))


def graph_of(gpu: Gpu, launch: Callable[..., None], turns: int) -> Callable[[], None]:
    """Capture 20 kernels and return what launches them."""
    stream, graph, instance = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call("cuStreamCreate", ctypes.byref(stream), 1)
    gpu.call("cuStreamBeginCapture_v2", stream, 0)
    for _ in range(20):
        launch(turns, stream)
    gpu.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    gpu.call("cuGraphInstantiateWithFlags", ctypes.byref(instance), graph, ctypes.c_uint64(0))
    return lambda: gpu.call("cuGraphLaunch", instance, stream)


def _load(gpu: Gpu, load: str, turns: int) -> tuple[float, Callable[[], None]]:
    """Return what starts one piece of a load, and its GPU time in ms."""
    launch = gpu.kernel()
    if load == "graphs":
        return 2, graph_of(gpu, launch, turns // 10)
    if load == "small":
        return 0.05, lambda: launch(turns // 20)
    if load == "kernels":
        return 1, lambda: launch(turns)

    def one_and_wait() -> None:
        launch(300 * turns)
        gpu.wait()

    return 300, one_and_wait


def share(turns: str, load: str, seconds: str) -> None:
    """Print the percentage of the GPU that a load got; `turns` of a millisecond without limits."""
    gpu = Gpu()
    ms, once = _load(gpu, load, int(turns))

    def run(until: float) -> int:
        count = 0
        while time.monotonic() < until:
            once()
            count += 1
            # Not too far ahead of the GPU: what is launched at the end is to be done soon.
            if count % max(1, int(20 / ms)) == 0:
                gpu.wait()
        gpu.wait()
        return count

    run(time.monotonic() + 3)
    start = time.monotonic()
    done = run(start + float(seconds))
    print(f"{100 * done * ms / 1000 / (time.monotonic() - start):.1f}")


def calibrate() -> None:
    """Print the turns of a millisecond."""
    gpu = Gpu()
    print(turns_of_a_ms(gpu, gpu.kernel()))


def addresses(table: str) -> None:
    """Print the hooked functions for which dlsym and cuGetProcAddress give different addresses."""
    gpu = Gpu()
    differ = []
    row = r"^(?:HOOK|LAUNCH)\((\w+), (\w+), (\d+), ([01])"
    rows = re.findall(row, Path(table).read_text(), re.MULTILINE)
    for symbol, base, version, per_thread in rows:
        if not hasattr(gpu.driver, symbol):
            continue
        found, status = ctypes.c_void_p(), ctypes.c_int()
        result = gpu.driver.cuGetProcAddress_v2(
            base.encode(),
            ctypes.byref(found),
            int(version),
            ctypes.c_uint64(2 if per_thread == "1" else 1),
            ctypes.byref(status),
        )
        known = ctypes.cast(getattr(gpu.driver, symbol), ctypes.c_void_p).value
        if result or found.value != known:
            differ.append(symbol)
    print(" ".join(differ) or "all equal")


def fill() -> None:
    """Print the total in MiB and how many MiB could be allocated in pieces of 64 MiB."""
    gpu, held = Gpu(), 0
    total = gpu.info()[1]
    while gpu.alloc(64 * MIB)[0] == OK:
        held += 64
    print(total // MIB, held)


def steady() -> None:
    """Print whether free memory is as before once an allocation is freed: vLLM checks this."""
    gpu = Gpu()
    before = gpu.info()
    _, address = gpu.alloc(256 * MIB)
    gpu.call("cuMemFree_v2", ctypes.c_uint64(address))
    print("the same" if gpu.info() == before else f"{before} became {gpu.info()}")


def rounding() -> None:
    """Print what allocations of one byte and small arrays really take, in KiB each."""
    gpu = Gpu()
    found = []
    for name, count, make in (
        ("1 byte", 4096, lambda: gpu.alloc(1)),
        ("64 KiB", 1024, lambda: gpu.alloc(64 << 10)),
        ("array of 64 x 64 bytes", 1024, lambda: array(gpu, 64, 64)),
        ("array of 1000 x 100 bytes", 1024, lambda: array(gpu, 1000, 100)),
    ):
        before = gpu.used()
        for _ in range(count):
            make()
        found.append(f"{name}: {(gpu.used() - before) / count / 1024:.1f}")
    print("; ".join(found))


def array(gpu: Gpu, width: int, height: int) -> None:
    """Make a two-dimensional array of bytes."""

    class Shape(ctypes.Structure):
        _fields_ = (
            ("width", ctypes.c_size_t),
            ("height", ctypes.c_size_t),
            ("format", ctypes.c_int),
            ("channels", ctypes.c_uint),
        )

    made, shape = ctypes.c_void_p(), Shape(width, height, 1, 1)
    gpu.call("cuArrayCreate_v2", ctypes.byref(made), ctypes.byref(shape))


def costs() -> None:
    """Print ns of each call that the library makes, and what answers while a capture goes on."""
    gpu = Gpu()
    pool, value, device = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int()
    event, stream, context = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    gpu.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
    gpu.call("cuEventCreate", ctypes.byref(event), 0)
    gpu.call("cuStreamCreate", ctypes.byref(stream), 1)
    calls: dict[str, tuple[Any, ...]] = {
        "cuMemPoolGetAttribute": (pool, 5, ctypes.byref(value)),
        "cuCtxGetDevice": (ctypes.byref(device),),
        "cuCtxGetCurrent": (ctypes.byref(context),),
        "cuEventRecord": (event, None),
        "cuEventQuery": (event,),
    }
    found = {}
    for name, arguments in calls.items():
        function, start = getattr(gpu.driver, name), time.perf_counter_ns()
        for _ in range(2000):
            function(*arguments)
        found[name] = (time.perf_counter_ns() - start) // 2000
    mode = ctypes.c_int(2)
    gpu.call("cuStreamBeginCapture_v2", stream, 0)
    results = [gpu.driver.cuMemPoolGetAttribute(*calls["cuMemPoolGetAttribute"])]
    gpu.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    results.append(gpu.driver.cuEventQuery(event))
    gpu.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    graph = ctypes.c_void_p()
    results.append(gpu.driver.cuStreamEndCapture(stream, ctypes.byref(graph)))
    print(f"{found}; in a capture, pool, event in relaxed mode, end of capture: {results}")


def launch_rate() -> None:
    """Print launches a second of an empty kernel."""
    gpu = Gpu()
    launch = gpu.kernel()
    launch(1)
    gpu.wait()
    start = time.monotonic()
    for number in range(200_000):
        launch(1)
        if number % LAUNCHES_AHEAD == 0:
            gpu.wait()
    print(int(200_000 / (time.monotonic() - start)))


def nvml() -> None:
    """Print this process's PID, how NVML lists it, and its utilisation samples and their period."""
    gpu = Gpu()
    launch = gpu.kernel()
    turns = turns_of_a_ms(gpu, launch)
    library, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    library.nvmlInit_v2()
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    stamps, pids = set(), set()
    for _ in range(40):
        for _ in range(50):
            launch(turns)
        gpu.wait()
        count, samples = ctypes.c_uint(64), (ctypes.c_uint64 * 256)()
        if library.nvmlDeviceGetProcessUtilization(
            handle, samples, ctypes.byref(count), ctypes.c_uint64(0)
        ):
            continue
        for i in range(count.value):
            pids.add(samples[4 * i] & 0xFFFFFFFF)
            stamps.add(samples[4 * i + 1])
    steps = sorted(stamps)
    periods = sorted((b - a) // 1000 for a, b in pairwise(steps))
    listed = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split("\n")
    period = f"{periods[len(periods) // 2]} ms" if periods else "unknown"
    print(f"pid {os.getpid()}; listed {listed[:-1]}; samples of {sorted(pids)}, period {period}")


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command
    for command in (
        addresses, calibrate, costs, fill, launch_rate, nvml, rounding, share, steady,
    )
}  # fmt: skip

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
