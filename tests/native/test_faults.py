"""Whatever fails, in the driver or in the machine: the program goes on, or is told that memory is out."""

import re
from typing import Final

import pytest

from hami_dra.node.limits import DeviceLimit
from tests.native.conftest import NATIVE, UUIDS, Container

_FAKE: Final = (NATIVE / "tests" / "fake" / "fake.def").read_text()
_FUNCTIONS: Final = re.findall(r"^F\((\w+),", _FAKE, re.MULTILINE)

_ROUND: Final = """
OTHER = 719
def attempt(step, *arguments):
    # What fails in the program's own call is the driver's answer; the helpers assert that it is none.
    try:
        return step(*arguments)
    except AssertionError:
        return None
def go_round(cuda):
    stream, graph, own = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    results = [cuda.alloc(MIB)[0], cuda.alloc(4000 * MIB)[0], cuda.managed(MIB)[0], cuda.pitched(1 << 10, 1 << 10)[0]]
    for suffix in ("", "_ptsz"):
        result, address = cuda.alloc_async(MIB, suffix=suffix)
        results += [result, *([] if result else [cuda.free_async(address, suffix)])]
    pool = attempt(cuda.pool)
    if pool is not None:
        result, address = cuda.alloc_from(pool, 32 * MIB)
        results += [result, *([] if result else [cuda.free_async(address)])]
        results += [cuda.call("cuMemPoolTrimTo", pool, ctypes.c_size_t(0)), cuda.call("cuMemPoolDestroy", pool)]
    result, handle = cuda.create(2 * MIB)
    if not result:
        address = attempt(cuda.map, handle, 2 * MIB)
        results += [cuda.release(handle)]
        if address is not None:
            result, again = cuda.retain(address)
            results += [result, cuda.unmap(address, 2 * MIB), *([] if result else [cuda.release(again)])]
    for made, end in ((cuda.array2d(1 << 10, 1 << 10), "cuArrayDestroy"),
                      (cuda.array3d(1 << 8, 1 << 8, 4), "cuArrayDestroy"),
                      (cuda.mipmapped(1 << 10, 1 << 10, 3), "cuMipmappedArrayDestroy")):
        results += [made[0], *([] if made[0] else [cuda.call(end, made[1])])]
    results += [cuda.call("cuStreamCreate", ctypes.byref(stream), 0)]
    results += [cuda.call("cuStreamBeginCapture_v2", stream, 0), cuda.alloc_async(MIB, stream)[0], cuda.launch(stream)]
    results += [cuda.call("cuStreamEndCapture", stream, ctypes.byref(graph))]
    for how in ("", "_v2", "WithFlags", "WithParams", "WithParams_ptsz"):
        instance = attempt(cuda.graph, MIB, 2, how)
        if instance is not None:
            results += [cuda.launch_graph(instance), cuda.call("cuGraphExecDestroy", instance)]
    results += [cuda.call("cuDeviceGraphMemTrim", 0)]
    for _ in range(40):
        results += [cuda.launch(), cuda.launch(stream)]
    if not cuda.call("cuCtxCreate_v2", ctypes.byref(own), 0, 0):
        results += [cuda.alloc(MIB)[0], cuda.call("cuCtxDestroy_v2", own),
                    cuda.call("cuCtxSetCurrent", cuda.context)]
    one, other = ctypes.c_size_t(), ctypes.c_size_t()
    results += [cuda.call("cuMemGetInfo_v2", ctypes.byref(one), ctypes.byref(other)),
                cuda.call("cuDeviceTotalMem_v2", ctypes.byref(one), 0), cuda.synchronize()]
    return set(results)
"""


_FAULTS: Final = f"""
import json
def one_fault(name, after, is_early):
    cuda = Cuda(initialise=not is_early)
    cuda.fail(name, OTHER, after)
    if is_early:
        results = [cuda.call("cuInit", 0)]
        attempt(cuda.use, 0)
        results += [cuda.alloc(MIB)[0], cuda.launch()]
    else:
        results = go_round(cuda)
    cuda.fail("none", 0)
    assert cuda.call("cuInit", 0) == OK
    cuda.call("cuDevicePrimaryCtxReset_v2", 0)
    cuda.use(0)
    before = cuda.used() == cuda.fake_used()
    refused, granted = cuda.alloc(4000 * MIB), cuda.alloc(600 * MIB)
    return [sorted(results), [before, refused[0], granted[0], cuda.free(granted[1])]]
def in_a_child(*fault):
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.write(writing, json.dumps(one_fault(*fault)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if status == 0 else [[], ["ended with", status]]
tell([[fault, *in_a_child(*fault)]
      for name in {_FUNCTIONS!r}
      for fault in [(name, after, is_early) for is_early in (False, True) for after in (0, 1, 3)]])
"""


def test_a_fault_of_any_function_is_passed_on_or_gone_past(container: Container) -> None:
    """Each function of the driver fails at its first, second or fourth call, at the start or in a round of all.

    A program sees no error that it does not see without the library, and afterwards the limit holds.
    """
    container.claim(*(DeviceLimit(uuid, 1000 << 20, core_percent=90) for uuid in UUIDS))
    alone = container.run(_ROUND + _FAULTS, LD_PRELOAD="")
    legal = {result for _, results, _ in alone for result in results} | {2}

    told = container.run(_ROUND + _FAULTS)

    assert [fault for fault, results, _ in told if not set(results) <= legal] == []
    assert [(fault, after) for fault, _, after in told if after != [True, 2, 0, 0]] == []


_LIMITED: Final = "tell([cuda.call('cuInit', 0), cuda.use(0), cuda.alloc(4000 * MIB)[0]][2])"


@pytest.mark.parametrize("spare", range(4))
def test_a_process_without_descriptors_gets_no_memory_beyond_its_limit(
    limited: Container, spare: int
) -> None:
    """The files of the claim cannot be opened, or only some of them."""
    told = limited.run(f"""
        import resource
        cuda = Cuda(initialise=False)
        cuda.fake_used()  # the fake opens its own file
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + {spare}, lowest + {spare}))
        {_LIMITED}
    """)

    assert told == 2


def test_a_process_without_address_space_gets_no_memory_beyond_its_limit(
    limited: Container,
) -> None:
    """Whatever of the library's needs is the first that the machine refuses."""
    told = limited.run("""
        import resource
        results = set()
        pages = os.sysconf("SC_PAGE_SIZE")
        for spare in range(0, 4 << 20, 64 << 10):
            reading, writing = os.pipe()
            if not (child := os.fork()):
                cuda = Cuda(initialise=False)
                cuda.fake_used()
                with open("/proc/self/statm") as sizes:
                    now = int(sizes.read().split()[0]) * pages
                resource.setrlimit(resource.RLIMIT_AS, (now + spare, now + spare))
                cuda.call("cuInit", 0)
                context = ctypes.c_void_p()
                cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
                cuda.call("cuCtxSetCurrent", context)
                os._exit(cuda.alloc(4000 * MIB)[0])
            results.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        tell(sorted(results))
    """)

    assert told == [2]


@pytest.mark.parametrize("was_pending", [False, True])
def test_a_message_that_nobody_reads_ends_no_program(
    limited: Container, *, was_pending: bool
) -> None:
    """Its stderr is a pipe without a reader, and it has not chosen to ignore the signal."""
    told = limited.run(f"""
        cuda = Cuda()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if {was_pending}:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
            os.kill(os.getpid(), signal.SIGPIPE)
        reading, writing = os.pipe()
        os.dup2(writing, 2)
        os.close(reading)
        result = cuda.alloc(4000 * MIB)[0]
        masked = signal.SIGPIPE in signal.pthread_sigmask(signal.SIG_BLOCK, [])
        tell([result, masked, signal.SIGPIPE in signal.sigpending()])
    """)

    assert told == [2, was_pending, was_pending]


def test_claims_that_cannot_be_read_grant_nothing(container: Container) -> None:
    """A directory is expected there; what else stands there tells no limits."""
    container.claims.write_text("")

    assert container.run("tell(Cuda().alloc(MIB)[0])") == 2
    assert "its limits are unknown" in container.said
