"""What a container sees: its limit as the size of the card, and its own processes with its own PIDs."""

import pytest

from hami_dra.node import limit_files
from hami_dra.node.limits import Control, DeviceLimit, DriverUsage
from tests.native.conftest import UUIDS, Container

NVML = """
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]
class Process1(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]
class Process2(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]
class Sample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("at", ctypes.c_ulonglong)] + [
        (name, ctypes.c_uint) for name in ("sm", "memory", "encoder", "decoder")]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlInit_v2()
def handle(index):
    device = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    return device
def memory(index):
    m = Memory()
    assert nvml.nvmlDeviceGetMemoryInfo(handle(index), ctypes.byref(m)) == 0
    return [m.total >> 20, m.free >> 20, m.used >> 20]
def memory2(index):
    m = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
    assert nvml.nvmlDeviceGetMemoryInfo_v2(handle(index), ctypes.byref(m)) == 0
    return [m.total >> 20, m.reserved, m.free >> 20, m.used >> 20]
def processes(name, index=0, room=8):
    kind = Process1 if name[-3:-1] != "_v" else Process2
    count, found = ctypes.c_uint(room), (kind * 8)()
    result = getattr(nvml, name)(handle(index), ctypes.byref(count), found if room else None)
    return [result, count.value, [[p.pid, p.used >> 20] for p in found[:min(count.value, room)]]]
"""


@pytest.mark.foreign
def test_cuda_and_nvml_tell_the_same_memory(limited: Container) -> None:
    told = limited.run(
        NVML
        + """
cuda = Cuda()
cuda.alloc(400 * MIB)
total = ctypes.c_size_t()
cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total), 0)
tell([[n >> 20 for n in cuda.info()], total.value >> 20, memory(0), memory2(0), memory(1)])
"""
    )

    assert told == [[600, 1000], 1000, [1000, 600, 400], [1000, 0, 600, 400], [1000, 1000, 0]]


def test_a_limit_above_the_card_shows_the_card(container: Container) -> None:
    container.claim(DeviceLimit(UUIDS[0], 1 << 60))

    told = container.run(NVML + "tell([Cuda().info()[1] >> 20, memory(0)[0]])")

    assert told == [16384, 16384]


def test_an_overcommitted_card_shows_what_is_really_free(container: Container) -> None:
    """Somebody else holds most of the card, within a limit of their own."""
    container.claim(DeviceLimit(UUIDS[0], 12 << 30))
    container.start(
        "cuda = Cuda(); tell(cuda.alloc(12000 * MIB)[0]); sys.stdin.readline()", LD_PRELOAD=""
    ).stdout.readline()  # type: ignore[union-attr]

    told = container.run("cuda = Cuda(); tell([n >> 20 for n in cuda.info()])")

    assert told == [4384, 12288]


def test_a_shrunk_limit_shows_nothing_free_and_no_underflow(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20)) / "control"
    process = container.start(
        NVML
        + """
cuda = Cuda()
tell(cuda.alloc(800 * MIB)[0])
sys.stdin.readline()
tell([[n >> 20 for n in cuda.info()], memory(0), memory2(0)])
"""
    )
    assert process.stdout is not None
    process.stdout.readline()
    limit_files.update(path, Control((DeviceLimit(UUIDS[0], 500 << 20),)))

    told, _ = process.communicate("\n", timeout=60)

    assert told == "[[0, 500], [500, 0, 500], [500, 0, 0, 500]]\n"


def test_null_is_a_legal_place_for_either_number(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        one = ctypes.c_size_t()
        tell([cuda.call("cuMemGetInfo_v2", None, None), cuda.call("cuMemGetInfo_v2", ctypes.byref(one), None),
              cuda.call("cuMemGetInfo_v2", None, ctypes.byref(one)), one.value >> 20])
    """)

    assert told == [0, 0, 0, 1000]


@pytest.mark.parametrize("version", ["", "_v2", "_v3"])
def test_process_lists_hold_this_container_alone(limited: Container, version: str) -> None:
    name = f"nvmlDeviceGetComputeRunningProcesses{version}"
    limited.start(
        "cuda = Cuda(); tell(cuda.alloc(900 * MIB)[0]); sys.stdin.readline()", LD_PRELOAD=""
    ).stdout.readline()  # type: ignore[union-attr]

    told = limited.run(
        NVML
        + f"""
cuda = Cuda()
before = processes({name!r})
cuda.alloc(300 * MIB)
graphics = processes("nvmlDeviceGetGraphicsRunningProcesses{version}")
tell([os.getpid(), before, processes({name!r}), processes({name!r}, room=0), graphics])
""",
        VGPU_FAKE_HOST_PID="777777",
    )

    pid = told[0]
    assert told[1:] == [[0, 0, []], [0, 1, [[pid, 300]]], [7, 1, []], [0, 0, []]]


def test_a_program_without_cuda_sees_the_limit_too(limited: Container) -> None:
    """As nvidia-smi: NVML alone, and the process that holds memory is another one."""
    holder = limited.start("cuda = Cuda(); tell(cuda.alloc(300 * MIB)[0]); sys.stdin.readline()")
    assert holder.stdout is not None
    holder.stdout.readline()

    told = limited.run(
        NVML + "tell([memory(0), processes('nvmlDeviceGetComputeRunningProcesses_v3')])"
    )

    assert told == [[1000, 700, 300], [0, 1, [[holder.pid, 300]]]]


def test_utilisation_of_others_is_not_shown(container: Container) -> None:
    limit = DeviceLimit(UUIDS[0], 1000 << 20)
    path = container.claim(limit)
    container.start(
        "cuda = Cuda(); tell(cuda.alloc(900 * MIB)[0]); sys.stdin.readline()", LD_PRELOAD=""
    ).stdout.readline()  # type: ignore[union-attr]
    process = container.start(
        NVML
        + """
cuda = Cuda()
cuda.alloc(MIB)
cuda.launch()
def sampled():
    count, found = ctypes.c_uint(8), (Sample * 8)()
    result = nvml.nvmlDeviceGetProcessUtilization(handle(0), found, ctypes.byref(count), ctypes.c_ulonglong(0))
    return [result, [found[i].pid for i in range(count.value)]]
tell([os.getpid(), sampled()])
sys.stdin.readline()
tell(sampled())
""",
        VGPU_FAKE_HOST_PID="777777",
    )
    assert process.stdout is not None
    before = process.stdout.readline()
    (seen,) = limit_files.read_usage(path / "usage", 1)
    told = DriverUsage(seen.pid, 777777, seen.start_time, (1 << 20,))
    limit_files.update(
        path / "control", Control((limit,), measured_at_ns=1, processes={seen.slot: told})
    )
    after, said = process.communicate("\n", timeout=60)

    assert before == f"[{seen.pid}, [0, []]]\n", said
    assert after == f"[0, [{seen.pid}]]\n"


def test_wrong_arguments_are_the_drivers_to_refuse(limited: Container) -> None:
    told = limited.run(
        NVML
        + """
m = Memory2(version=1)
count = ctypes.c_uint(0)
tell([nvml.nvmlDeviceGetMemoryInfo(None, None), nvml.nvmlDeviceGetMemoryInfo_v2(handle(0), ctypes.byref(m)),
      nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle(0), None, None),
      Cuda().call("cuDeviceTotalMem_v2", None, 0)])
"""
    )

    assert told == [2, 2, 2, 1]
