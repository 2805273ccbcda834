"""The gate of the compute share in running processes: what passes it, what waits, and what it leaves alone."""

import time
from pathlib import Path

import pytest

from hami_dra.lab import wait
from hami_dra.node import limit_files
from hami_dra.node.limits import Control, CorePolicy, DeviceFlag, DeviceLimit
from tests.native.budget import MS, SECOND, Budget
from tests.native.conftest import UUIDS, Container

_LAUNCH = """
cuda = Cuda()
tell(os.getpid())
for line in sys.stdin:
    for _ in range(int(line)):
        assert cuda.launch() == OK
    tell("done")
"""


class _Launcher:
    """A process that launches on demand, and the agent's hand on its claim."""

    def __init__(
        self, container: Container, limit: DeviceLimit, policy: CorePolicy = CorePolicy.DEFAULT
    ) -> None:
        self.limit = limit
        self.path = container.claim(limit, core_policy=policy)
        self.process = container.start(_LAUNCH, VGPU_FAKE_KERNEL_NS=str(MS))
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.told: list[str] = []
        self.pid = int(self.process.stdout.readline())

    def ask(self, launches: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{launches}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def throttled_ns(self) -> int:
        (process,) = limit_files.read_usage(self.path / "usage", 1)
        return process.devices[0].throttled_ns

    def update(self, limit: DeviceLimit) -> None:
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        limit_files.update(self.path / "control", Control((limit,), measured_at_ns=now))


def test_launches_wait_when_the_share_is_spent_and_say_for_how_long(container: Container) -> None:
    launcher = _Launcher(container, DeviceLimit(UUIDS[0], None, core_percent=20))

    launcher.ask(3000)

    assert launcher.answer() == '"done"\n'
    assert launcher.throttled_ns() > 100 * MS


@pytest.mark.parametrize("percent", [0, 100])
def test_no_share_is_no_gate(container: Container, percent: int) -> None:
    launcher = _Launcher(container, DeviceLimit(UUIDS[0], None, core_percent=percent))

    launcher.ask(2000)
    launcher.answer()

    (process,) = limit_files.read_usage(launcher.path / "usage", 1)
    assert (process.devices[0].launches, process.devices[0].throttled_ns) == (0, 0)


def test_the_policy_decides_whether_the_switch_counts(container: Container) -> None:
    off = DeviceLimit(UUIDS[0], None, core_percent=10, flags=DeviceFlag.CORES_OFF)
    gated = []
    for number, policy in enumerate(CorePolicy):
        one = Container(container.built, container.directory / str(number))
        one.directory.mkdir()
        launcher = _Launcher(one, off, policy)
        launcher.ask(10)
        launcher.answer()
        (process,) = limit_files.read_usage(launcher.path / "usage", 1)
        gated.append((policy, process.devices[0].launches))
        launcher.process.communicate()

    assert gated == [(CorePolicy.DEFAULT, 0), (CorePolicy.FORCE, 10), (CorePolicy.DISABLE, 0)]


def test_a_share_that_is_given_or_taken_later_holds_at_once(container: Container) -> None:
    launcher = _Launcher(container, DeviceLimit(UUIDS[0], None))
    launcher.ask(10)
    launcher.answer()
    launcher.update(DeviceLimit(UUIDS[0], None, core_percent=10))
    launcher.ask(10)
    launcher.answer()
    launcher.update(DeviceLimit(UUIDS[0], None, core_percent=0))
    launcher.ask(10)
    launcher.answer()

    (process,) = limit_files.read_usage(launcher.path / "usage", 1)
    assert process.devices[0].launches == 10


@pytest.mark.foreign
def test_a_blocked_claim_waits_until_it_is_unblocked(container: Container) -> None:
    limit = DeviceLimit(UUIDS[0], None)
    launcher = _Launcher(container, limit)
    launcher.update(DeviceLimit(UUIDS[0], None, flags=DeviceFlag.BLOCKED))
    launcher.ask(1)

    def is_counted() -> bool:
        (process,) = limit_files.read_usage(launcher.path / "usage", 1)
        return process.devices[0].launches == 1

    wait.until(is_counted, what="the launch reaches the gate")
    launcher.update(limit)

    assert launcher.answer() == '"done"\n'


def test_a_claim_is_not_blocked_for_ever_by_an_agent_that_died(container: Container) -> None:
    launcher = _Launcher(container, DeviceLimit(UUIDS[0], None))
    launcher.update(DeviceLimit(UUIDS[0], None, flags=DeviceFlag.BLOCKED))

    launcher.ask(1)

    assert launcher.answer() == '"done"\n'


def test_an_agent_that_measures_memory_alone_leaves_time_to_the_library(
    container: Container,
) -> None:
    launcher = _Launcher(container, DeviceLimit(UUIDS[0], None, core_percent=50))
    for _ in range(5):
        launcher.update(launcher.limit)
        launcher.ask(20)
        launcher.answer()

    assert _budget_of(launcher.path).cost_ns > MS / 2


@pytest.mark.parametrize(
    ("stream", "suffix"),
    [
        ("cuda.stream()", ""),
        ("cuda.stream()", "_ptsz"),
        ("None", "_ptsz"),
        ("ctypes.c_void_p(2)", ""),
    ],
)
def test_captured_launches_cost_nothing(container: Container, stream: str, suffix: str) -> None:
    """In the streams that can be captured: those that were made, and each thread's own default."""
    path = container.claim(DeviceLimit(UUIDS[0], None, core_percent=10))

    told = container.run(f"""
        cuda = Cuda()
        stream, graph, count = {stream}, ctypes.c_void_p(), ctypes.c_size_t()
        cuda.driver.fake_spoiled_captures.restype = ctypes.c_uint64
        assert cuda.call("cuStreamBeginCapture_v2{suffix}", stream, 0) == OK
        grid = (None, 1, 1, 1, 1, 1, 1, 0, stream)
        for _ in range(50):
            assert cuda.call("cuLaunchKernel{suffix}", *grid, None, None) == OK
        assert cuda.call("cuStreamEndCapture{suffix}", stream, ctypes.byref(graph)) == OK
        cuda.call("cuGraphGetNodes", graph, None, ctypes.byref(count))
        tell([count.value, cuda.driver.fake_spoiled_captures()])
    """)

    (process,) = limit_files.read_usage(path / "usage", 1)
    assert process.devices[0].launches == 0
    assert told == [50, 0]


@pytest.mark.foreign
def test_every_way_to_launch_passes_the_gate(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], None, core_percent=10))

    container.run("""
        cuda = Cuda()
        grid = (None, 1, 1, 1, 1, 1, 1, 0, None)
        for suffix in ("", "_ptsz"):
            cuda.call("cuLaunchKernel" + suffix, *grid, None, None)
            cuda.call("cuLaunchKernelEx" + suffix, None, None, None, None)
            cuda.call("cuLaunchCooperativeKernel" + suffix, *grid, None)
            cuda.launch_graph(cuda.graph(kernels=10), suffix)
        cuda.call("cuLaunch", None)
        cuda.call("cuLaunchGrid", None, 1, 1)
        cuda.call("cuLaunchGridAsync", None, 1, 1, None)
        cuda.call("cuLaunchCooperativeKernelMultiDevice", None, 1, 0)
    """)

    (process,) = limit_files.read_usage(path / "usage", 1)
    assert process.devices[0].launches == 2 * (3 + 10) + 4


def test_kernels_of_graphs_in_graphs_count(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], None, core_percent=10))

    container.run("""
        cuda = Cuda()
        cuda.launch_graph(cuda.instantiate(cuda.nest(cuda.nest(cuda.blueprint({}, kernels=10)))))
    """)

    (process,) = limit_files.read_usage(path / "usage", 1)
    assert process.devices[0].launches == 10


_COUNTED = """
    cuda = Cuda()
    for _ in range(10):
        cuda.launch()
"""


def _launches(path: Path) -> int:
    return sum(process.devices[0].launches for process in limit_files.read_usage(path / "usage", 1))


def test_shares_of_one_card_in_several_claims_add_up(container: Container) -> None:
    """Together they are the whole card, so nothing is held back."""
    first = container.claim(DeviceLimit(UUIDS[0], None, core_percent=60), uid="a")
    second = container.claim(DeviceLimit(UUIDS[0], None, core_percent=40), uid="b")

    container.run(_COUNTED)

    assert (_launches(first), _launches(second)) == (0, 0)


def test_all_processes_spend_several_claims_from_one_budget(container: Container) -> None:
    """The first by name, in whatever order the directory lists them."""
    second = container.claim(DeviceLimit(UUIDS[0], None, core_percent=10), uid="b")
    first = container.claim(DeviceLimit(UUIDS[0], None, core_percent=60), uid="a")

    for _ in range(2):
        container.run(_COUNTED)
        # Whoever starts drops the books of those who ended.
        assert (_launches(first), _launches(second)) == (10, 0)


def test_a_resize_of_any_claim_holds_at_once(container: Container) -> None:
    first = container.claim(DeviceLimit(UUIDS[0], None, core_percent=60), uid="a")
    second = container.claim(DeviceLimit(UUIDS[0], None, core_percent=40), uid="b")
    process = container.start(_LAUNCH)
    assert process.stdout is not None
    process.stdout.readline()
    for percent in (40, 30, 40):
        limit_files.update(
            second / "control", Control((DeviceLimit(UUIDS[0], None, core_percent=percent),))
        )
        assert process.stdin is not None
        process.stdin.write("10\n")
        process.stdin.flush()
        process.stdout.readline()

    assert _launches(first) == 10


def test_watching_launches_spoils_no_capture(container: Container) -> None:
    """A capture of the strict kind fails when any thread looks at an event in the usual way."""
    container.claim(DeviceLimit(UUIDS[0], None, core_percent=50))

    told = container.run("""
        cuda = Cuda()
        stream = ctypes.c_void_p()
        cuda.call("cuStreamCreate", ctypes.byref(stream), 0)
        cuda.call("cuStreamBeginCapture_v2", stream, 0)
        def launch():
            cuda.use(0)
            for _ in range(200):
                cuda.launch()
        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()
        cuda.driver.fake_calls.restype = cuda.driver.fake_spoiled_captures.restype = ctypes.c_uint64
        looked = cuda.driver.fake_calls(b"cuEventQuery")
        tell([looked > 0, cuda.driver.fake_spoiled_captures()])
    """)

    assert told == [True, 0]


def test_launches_are_followed_in_their_own_stream(container: Container) -> None:
    """Anything put into the default stream that all threads share would make threads wait."""
    container.claim(DeviceLimit(UUIDS[0], None, core_percent=50))

    told = container.run("""
        cuda = Cuda()
        cuda.driver.fake_marked_stream.restype = ctypes.c_uint64
        stream, grid = ctypes.c_void_p(), (None, 1, 1, 1, 1, 1, 1, 0)
        cuda.call("cuStreamCreate", ctypes.byref(stream), 0)
        seen = []
        for name, where in (("", None), ("_ptsz", None), ("", stream), ("_ptsz", stream)):
            cuda.call("cuLaunchKernel" + name, *grid, where, None, None)
            seen.append(cuda.driver.fake_marked_stream())
        graph = cuda.graph(kernels=3)
        for name in ("", "_ptsz"):
            cuda.launch_graph(graph, name)
            seen.append(cuda.driver.fake_marked_stream())
        tell([mark if mark != stream.value else "own" for mark in seen])
    """)

    assert told == [0, 2, "own", "own", 0, 2]


def test_launches_go_on_when_contexts_come_and_go(container: Container) -> None:
    """Events end with their context."""
    path = container.claim(DeviceLimit(UUIDS[0], None, core_percent=90))

    container.run(
        """
        cuda = Cuda()
        for _ in range(20):
            for _ in range(20):
                assert cuda.launch() == OK
            assert cuda.call("cuDevicePrimaryCtxReset_v2", 0) == OK
            cuda.use(0)
    """,
        VGPU_FAKE_KERNEL_NS="1000",
    )

    assert _launches(path) >= 400


@pytest.mark.parametrize("broken", ["cuEventCreate", "cuEventRecord", "cuEventQuery"])
def test_launches_go_on_when_events_do_not_work(container: Container, broken: str) -> None:
    container.claim(DeviceLimit(UUIDS[0], None, core_percent=90))

    told = container.run(f"""
        cuda = Cuda()
        results = set()
        for _ in range(100):
            cuda.fail("{broken}", 999)
            results.add(cuda.launch())
        tell(sorted(results))
    """)

    assert told == [0]


def test_what_a_killed_process_had_on_its_way_is_forgotten(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], None, core_percent=50))
    launcher = container.start(
        "cuda = Cuda(); cuda.launch(); tell(0); sys.stdin.readline()",
        VGPU_FAKE_KERNEL_NS=str(30 * SECOND),
    )
    assert launcher.stdout is not None
    launcher.stdout.readline()
    before = _budget_of(path).pending
    launcher.kill()
    launcher.wait()

    container.run("Cuda().alloc(MIB); Cuda().info()")

    assert (before, _budget_of(path).pending) == (1, 0)


def test_threads_that_end_leave_nothing_charged(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], None, core_percent=90))

    container.run(
        """
        cuda = Cuda()
        def launch():
            cuda.use(0)
            for _ in range(200):
                cuda.launch()
        for _ in range(20):
            thread = threading.Thread(target=launch)
            thread.start()
            thread.join()
        cuda.launch()
        cuda.launch()
    """,
        VGPU_FAKE_KERNEL_NS="1",
    )

    assert _launches(path) >= 20 * 200
    assert _budget_of(path).pending <= 2


def _budget_of(path: Path) -> Budget:
    return Budget.from_buffer_copy((path / "usage").read_bytes(), 128)
