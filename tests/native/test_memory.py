"""Memory: every way to allocate is charged, refused beyond the limit, and given back."""

import subprocess

import pytest

from hami_dra.node import limit_files
from hami_dra.node.limits import ClaimFlag, Control, DeviceLimit, DriverUsage
from tests.native.conftest import UUIDS, Container

PATHS = {
    "cuMemAlloc": "cuda.alloc({size})[0]",
    "cuMemAllocPitch": "cuda.pitched(1 << 20, {size} >> 20)[0]",
    "cuMemAllocManaged": "cuda.managed({size})[0]",
    "cuMemCreate": "cuda.create({size})[0]",
    "cuMemCreate in a locality domain": "cuda.create({size}, location_type=6)[0]",
    "cuMemAllocAsync": "cuda.alloc_async({size})[0]",
    "cuMemAllocAsync, per thread": "cuda.alloc_async({size}, suffix='_ptsz')[0]",
    "cuMemAllocFromPoolAsync": "cuda.alloc_from(cuda.pool(), {size})[0]",
    "cuMemAllocFromPoolAsync, per thread": "cuda.alloc_from(cuda.pool(), {size}, '_ptsz')[0]",
    "pool of a locality domain": "cuda.alloc_from(cuda.pool(6), {size})[0]",
    "pool of managed memory": "cuda.alloc_from(cuda.pool(1, 2), {size})[0]",
    "pool of managed memory without a place": "cuda.alloc_from(cuda.pool(0, 2), {size})[0]",
    "pool after hundreds": "[cuda.pool() for _ in range(300)] and cuda.alloc_from(cuda.pool(), {size})[0]",
    "cuArrayCreate": "cuda.array2d(1 << 20, {size} >> 20)[0]",
    "cuArray3DCreate": "cuda.array3d(1 << 10, 1 << 10, {size} >> 20)[0]",
    "cuMipmappedArrayCreate": "cuda.mipmapped(1 << 20, {size} >> 20, 3)[0]",
    "graph memory node": "cuda.launch_graph(cuda.graph({size}))",
    "graph memory node, per thread": "cuda.launch_graph(cuda.graph({size}), '_ptsz')",
    "graph that is uploaded": "cuda.upload(cuda.graph({size}))",
    "graph that is uploaded, per thread": "cuda.upload(cuda.graph({size}), '_ptsz')",
    "graph that is uploaded as it is made": "cuda.instantiate_and_upload(cuda.blueprint({{0: {size}}}))",
    "graph that is uploaded as it is made, per thread": (
        "cuda.instantiate_and_upload(cuda.blueprint({{0: {size}}}), '_ptsz')"
    ),
    "graph in a graph": "cuda.launch_graph(cuda.instantiate(cuda.nest(cuda.blueprint({{0: {size}}}))))",
    "graph with memory on two cards": (
        "cuda.launch_graph(cuda.instantiate(cuda.blueprint({{0: {size}, 1: MIB}})))"
    ),
}


@pytest.mark.foreign
@pytest.mark.parametrize("path", PATHS)
def test_no_way_to_allocate_leads_past_the_limit(limited: Container, path: str) -> None:
    told = limited.run(f"""
        cuda = Cuda()
        beyond = {PATHS[path].format(size="4000 * MIB")}
        held = cuda.fake_used()
        within = {PATHS[path].format(size="600 * MIB")}
        tell([beyond, held, within, cuda.used() >= 600 * MIB, cuda.used() == cuda.fake_used()])
    """)

    assert told == [2, 0, 0, True, True]


def test_a_refusal_says_what_was_asked_and_what_is_used(limited: Container) -> None:
    limited.run("Cuda().alloc(4000 * MIB)")

    assert "refused 4194304000 bytes on GPU 0: 0 of 1048576000 bytes are in use" in limited.said


def test_a_hundred_refusals_are_said_in_five_lines(limited: Container) -> None:
    limited.run("cuda = Cuda(); [cuda.alloc(4000 * MIB) for _ in range(100)]")

    assert limited.said.count("refused") == 5


ROUND_TRIPS = {
    "plain": "address = cuda.alloc(SIZE)[1]; cuda.free(address)",
    "pitched": "address = cuda.pitched(1 << 20, 100)[1]; cuda.free(address)",
    "managed": "address = cuda.managed(SIZE)[1]; cuda.free(address)",
    "plain freed on a stream": "address = cuda.alloc(SIZE)[1]; cuda.free_async(address)",
    "pool": "address = cuda.alloc_async(SIZE)[1]; cuda.free_async(address); cuda.synchronize()",
    "pool freed at once": "address = cuda.alloc_async(SIZE)[1]; cuda.free(address); cuda.synchronize()",
    "own pool": (
        "pool = cuda.pool(); address = cuda.alloc_from(pool, SIZE)[1]; cuda.free_async(address)\n"
        "        cuda.call('cuMemPoolTrimTo', pool, ctypes.c_size_t(0))"
    ),
    "destroyed pool": (
        "pool = cuda.pool(); address = cuda.alloc_from(pool, SIZE)[1]\n"
        "        cuda.call('cuMemPoolDestroy', pool); cuda.free_async(address)"
    ),
    "array": "array = cuda.array3d(1 << 10, 1 << 10, 100)[1]; cuda.call('cuArrayDestroy', array)",
    "mipmapped array": (
        "array = cuda.mipmapped(1 << 10, 1 << 10, 4)[1]; cuda.call('cuMipmappedArrayDestroy', array)"
    ),
    "handle": "handle = cuda.create(SIZE)[1]; cuda.release(handle)",
    "graph": (
        "graph = cuda.graph(SIZE); cuda.launch_graph(graph)\n"
        "        cuda.call('cuGraphExecDestroy', graph); cuda.call('cuDeviceGraphMemTrim', 0)"
    ),
    "graph, by a reset": "cuda.launch_graph(cuda.graph(SIZE)); cuda.call('cuDevicePrimaryCtxReset_v2', 0)",
    "reset": "cuda.alloc(SIZE); cuda.array2d(1 << 10, 1 << 10); cuda.call('cuDevicePrimaryCtxReset_v2', 0)",
    "last release": "cuda.alloc(SIZE); cuda.call('cuDevicePrimaryCtxRelease_v2', 0)",
    "detached context": (
        "other = ctypes.c_void_p(); cuda.call('cuCtxCreate_v2', ctypes.byref(other), 0, 0)\n"
        "        cuda.alloc(SIZE); cuda.array2d(1 << 10, 1 << 10); cuda.call('cuCtxDetach', other); cuda.use(0)"
    ),
    "context": (
        "other = ctypes.c_void_p(); cuda.call('cuCtxCreate_v2', ctypes.byref(other), 0, 0)\n"
        "        cuda.alloc(SIZE); cuda.call('cuCtxDestroy_v2', other); cuda.use(0)"
    ),
}


@pytest.mark.parametrize("way", ROUND_TRIPS)
def test_what_is_freed_is_free_again(limited: Container, way: str) -> None:
    told = limited.run(f"""
        SIZE = 100 * MIB
        cuda = Cuda()
        {ROUND_TRIPS[way]}
        cuda.use(0)
        tell([cuda.used(), cuda.fake_used()])
    """)

    assert told == [0, 0]


def test_a_context_that_is_attached_twice_ends_at_the_second_detach(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        other = ctypes.c_void_p()
        cuda.call("cuCtxCreate_v2", ctypes.byref(other), 0, 0)
        cuda.call("cuCtxAttach", ctypes.byref(other), 0)
        cuda.alloc(100 * MIB)
        results = [cuda.call("cuCtxDetach", other), cuda.used() >> 20, cuda.call("cuCtxDetach", other)]
        cuda.use(0)
        tell([results, cuda.used()])
    """)

    assert told == [[0, 100, 0], 0]


@pytest.mark.parametrize(
    ("name", "allocate"),
    [
        ("cuMemAlloc_v2", "cuda.alloc(MIB)[0]"),
        ("cuMemAllocManaged", "cuda.managed(MIB)[0]"),
        ("cuMemAllocPitch_v2", "cuda.pitched(1024, 1024)[0]"),
        ("cuMemCreate", "cuda.create(2 * MIB)[0]"),
        ("cuMemAllocAsync", "cuda.alloc_async(MIB)[0]"),
        ("cuArray3DCreate_v2", "cuda.array3d(1024, 1024, 1)[0]"),
        ("cuMipmappedArrayCreate", "cuda.mipmapped(1024, 1024, 1)[0]"),
        ("cuGraphLaunch", "cuda.launch_graph(graph)"),
        ("cuGraphUpload", "cuda.upload(graph)"),
        ("cuGraphInstantiateWithParams", "cuda.instantiate_and_upload(cuda.blueprint({0: MIB}))"),
    ],
)
def test_what_the_driver_does_not_give_is_not_charged(
    limited: Container, name: str, allocate: str
) -> None:
    told = limited.run(f"""
        cuda = Cuda()
        graph = cuda.graph(MIB)
        cuda.fail({name!r}, 719)
        tell([{allocate}, cuda.used()])
    """)

    assert told == [719, 0]


def test_a_free_that_the_driver_refuses_keeps_the_charge(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        address = cuda.alloc(MIB)[1]
        cuda.fail("cuMemFree_v2", 719)
        tell([cuda.free(address), cuda.used(), cuda.free(address), cuda.used()])
    """)

    assert told == [719, 1 << 20, 0, 0]


@pytest.mark.foreign
def test_addresses_that_nobody_charged_go_to_the_driver(limited: Container) -> None:
    """An imported address, NULL and nonsense are the driver's to judge."""
    told = limited.run("""
        cuda = Cuda()
        address = ctypes.c_uint64()
        cuda.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), ctypes.c_uint64(0), ctypes.c_uint64(0), 0)
        cuda.driver.fake_calls.restype = ctypes.c_uint64
        results = [cuda.free(address.value), cuda.free(0), cuda.free(12345)]
        tell([results, cuda.driver.fake_calls(b"cuMemFree_v2"), cuda.used()])
    """)

    assert told == [[0, 0, 1], 3, 0]


def test_memory_lives_as_long_as_a_handle_or_a_mapping(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        size = 100 * MIB
        handle = cuda.create(size)[1]
        address = cuda.map(handle, size)
        cuda.release(handle)
        after_release = cuda.used()
        _, again = cuda.retain(address + 4096)
        cuda.unmap(address, size)
        after_unmap = cuda.used()
        cuda.release(again)
        tell([after_release >> 20, after_unmap >> 20, cuda.used(), cuda.fake_used()])
    """)

    assert told == [100, 100, 0, 0]


def test_one_unmap_may_end_several_mappings(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        size = 10 * MIB
        start = cuda.reserve(3 * size)
        for i in range(3):
            handle = cuda.create(size)[1]
            cuda.map(handle, size, start + i * size)
            cuda.release(handle)
        mapped = cuda.used()
        tell([mapped >> 20, cuda.unmap(start, 3 * size), cuda.used()])
    """)

    assert told == [30, 0, 0]


ENDS_OF_VIRTUAL_MEMORY = pytest.mark.parametrize(
    ("name", "end"),
    [("cuMemRelease", "cuda.release(handle)"), ("cuMemUnmap", "cuda.unmap(address, size)")],
)


@ENDS_OF_VIRTUAL_MEMORY
def test_a_handle_may_be_given_out_again_before_its_end_returns(
    limited: Container, name: str, end: str
) -> None:
    """Another thread gets the number while the call that freed it still runs."""
    told = limited.run(f"""
        cuda = Cuda()
        size = 100 * MIB
        handle = cuda.create(size)[1]
        if {name!r} == "cuMemUnmap":
            address = cuda.map(handle, size)
            cuda.release(handle)
        made = []
        then = ctypes.CFUNCTYPE(None)(lambda: made.append(cuda.create(3 * size)[1]))
        cuda.driver.fake_at_end({name.encode()!r}, then)
        ended = {end}
        meanwhile = cuda.used() >> 20
        tell([ended, made == [handle], meanwhile, cuda.release(made[0]), cuda.used()])
    """)

    assert told == [0, True, 300, 0, 0]


@ENDS_OF_VIRTUAL_MEMORY
def test_virtual_memory_that_the_driver_keeps_stays_charged(
    limited: Container, name: str, end: str
) -> None:
    told = limited.run(f"""
        cuda = Cuda()
        size = 100 * MIB
        handle = cuda.create(size)[1]
        address = cuda.map(handle, size) if {name!r} == "cuMemUnmap" else 0
        if address:
            cuda.release(handle)
        cuda.fail({name!r}, 719)
        tell([{end}, cuda.used() >> 20, {end}, cuda.used()])
    """)

    assert told == [719, 100, 0, 0]


def test_memory_on_the_host_is_not_charged(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        host = ctypes.c_void_p()
        handle = cuda.create(4000 * MIB, location_type=2)
        pinned = cuda.call("cuMemAllocHost_v2", ctypes.byref(host), ctypes.c_size_t(MIB))
        tell([handle[0], pinned, cuda.used()])
    """)

    assert told == [0, 0, 0]


@pytest.mark.parametrize("version", [12040, 13000, 13050])
@pytest.mark.parametrize("pool", ["cuda.host_pool()", "cuda.pool(2)"])
def test_pools_on_the_host_are_not_charged(limited: Container, pool: str, version: int) -> None:
    if version < 13000:
        pool = "cuda.pool(2)"
    told = limited.run(
        f"""
        cuda = Cuda()
        pool = {pool}
        tell([cuda.alloc_from(pool, 4000 * MIB)[0], cuda.used()])
        """,
        VGPU_FAKE_VERSION=str(version),
    )

    assert told == [0, 0]


@pytest.mark.parametrize("version", [12040, 13050])
def test_the_pool_of_another_card_is_charged_there(container: Container, version: int) -> None:
    """A pool serves streams of any card."""
    container.claim(DeviceLimit(UUIDS[0], 1000 << 20), DeviceLimit(UUIDS[1], 100 << 20))

    told = container.run(
        """
        cuda = Cuda(1)
        own = cuda.pool()
        cuda.use(0)
        pools = [cuda.default_pool(1), own]
        beyond = [cuda.alloc_from(pool, 200 * MIB)[0] for pool in pools]
        within = cuda.alloc_from(pools[0], 64 * MIB)[0]
        first = cuda.used()
        cuda.use(1)
        tell([beyond, within, first, cuda.used() >> 20, cuda.fake_used(1) >> 20])
        """,
        VGPU_FAKE_VERSION=str(version),
    )

    assert told == [[2, 2], 0, 0, 64, 64]


def test_a_limited_card_is_reached_through_no_stream_of_another(container: Container) -> None:
    container.claim(DeviceLimit(UUIDS[1], 100 << 20))

    assert (
        container.run("cuda = Cuda(0); tell(cuda.alloc_from(cuda.default_pool(1), 200 * MIB)[0])")
        == 2
    )


def test_managed_pools_are_charged_as_managed_memory_is(container: Container) -> None:
    container.claim(DeviceLimit(UUIDS[0], 100 << 20), flags=ClaimFlag.IGNORE_MANAGED)

    told = container.run("""
        cuda = Cuda()
        pools = [cuda.pool(1, 2), cuda.pool(0, 2)]
        tell([[cuda.alloc_from(pool, 200 * MIB)[0] for pool in pools], cuda.alloc_async(200 * MIB)[0]])
    """)

    assert told == [[0, 0], 2]


_SHAPES = {
    "volume": "1 << 10, 1 << 10, 5, depth=16",
    "layers": "1 << 10, 1 << 10, 5, depth=16, flags=1",
    "layers of one line": "1 << 12, 0, 5, depth=2048, flags=1",
    "cube": "1 << 10, 1 << 10, 5, depth=6, flags=4",
    "layers of cubes": "1 << 10, 1 << 10, 5, depth=12, flags=5",
    **{f"format {form:#x}": f"1 << 10, 1 << 10, 5, form={form}" for form in range(0xC0, 0xCC)},
}


def test_arrays_are_charged_by_their_shape(limited: Container) -> None:
    told = limited.run(f"""
        cuda = Cuda()
        told = {{}}
        for name, shape in {_SHAPES!r}.items():
            result, array = eval(f"cuda.mipmapped({{shape}})")
            told[name] = [result, cuda.used(), cuda.fake_used()]
            cuda.call("cuMipmappedArrayDestroy", array)
        tell([told, cuda.used()])
    """)

    books, rest = told
    assert [name for name, (result, ours, _) in books.items() if result or ours < 1 << 20] == []
    assert [name for name, (_, ours, card) in books.items() if ours != card] == []
    assert rest == 0


def test_a_thread_without_a_context_is_charged_where_its_call_says(limited: Container) -> None:
    """Only what names its device can be allocated there; all else is the driver's to refuse."""
    told = limited.run("""
        cuda = Cuda(1)
        told = []
        def work():
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            told.extend([cuda.alloc(MIB)[0], cuda.managed(MIB)[0], cuda.alloc_async(MIB)[0],
                         cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)),
                         cuda.create(600 * MIB)[0], cuda.create(600 * MIB)[0]])
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        second = cuda.used() >> 20
        cuda.use(0)
        tell([told, second, cuda.used()])
    """)

    assert told == [[201, 201, 201, 201, 0, 2], 600, 0]


def test_a_pool_is_charged_for_what_it_keeps_back(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        pool = cuda.pool()
        keep = ctypes.c_uint64(2**40)
        cuda.call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))
        address = cuda.alloc_from(pool, 640 * MIB)[1]
        cuda.free_async(address)
        kept = cuda.used()
        again = cuda.alloc_from(pool, 640 * MIB)[0]
        tell([kept >> 20, again, cuda.used() >> 20])
    """)

    assert told == [640, 0, 640]


def test_an_allocation_takes_back_what_pools_and_graphs_keep(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        pool = cuda.pool()
        keep = ctypes.c_uint64(2**40)
        cuda.call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))
        cuda.free_async(cuda.alloc_from(pool, 640 * MIB)[1])
        first = cuda.alloc(900 * MIB)
        cuda.free(first[1])
        graph = cuda.graph(640 * MIB)
        cuda.launch_graph(graph)
        cuda.call("cuGraphExecDestroy", graph)
        tell([first[0], cuda.alloc(900 * MIB)[0], cuda.fake_used() >> 20])
    """)

    assert told == [0, 0, 900]


@pytest.mark.parametrize("take", ["cuda.launch_graph(graph)", "cuda.upload(graph)"])
def test_a_graph_takes_back_what_pools_and_other_graphs_keep(limited: Container, take: str) -> None:
    told = limited.run(f"""
        cuda = Cuda()
        pool = cuda.pool()
        keep = ctypes.c_uint64(2**40)
        cuda.call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))
        cuda.free_async(cuda.alloc_from(pool, 320 * MIB)[1])
        other = cuda.graph(320 * MIB)
        cuda.launch_graph(other)
        cuda.call("cuGraphExecDestroy", other)
        graph = cuda.graph(900 * MIB)
        tell([{take}, cuda.used() >> 20, cuda.fake_used() >> 20])
    """)

    assert told == [0, 900, 900]


def test_the_memory_of_a_graph_is_charged_to_the_cards_it_is_on(container: Container) -> None:
    container.claim(DeviceLimit(UUIDS[0], 100 << 20), DeviceLimit(UUIDS[1], 300 << 20))

    told = container.run("""
        cuda = Cuda()
        beyond = cuda.launch_graph(cuda.instantiate(cuda.blueprint({1: 50 * MIB, 0: 200 * MIB})))
        within = cuda.instantiate(cuda.blueprint({0: 50 * MIB, 1: 200 * MIB}))
        results = [cuda.launch_graph(within), cuda.launch_graph(within)]
        first = cuda.used() >> 20
        cuda.use(1)
        tell([beyond, results, first, cuda.used() >> 20, cuda.fake_used(0) >> 20, cuda.fake_used(1) >> 20])
    """)

    assert told == [2, [0, 0], 50, 200, 50, 200]


@pytest.mark.parametrize(
    ("stream", "suffix"), [("cuda.stream()", ""), ("None", "_ptsz"), ("ctypes.c_void_p(2)", "")]
)
def test_captured_allocations_cost_nothing_until_their_graph_runs(
    limited: Container, stream: str, suffix: str
) -> None:
    told = limited.run(f"""
        cuda = Cuda()
        cuda.alloc(900 * MIB)
        stream, graph, instance = {stream}, ctypes.c_void_p(), ctypes.c_void_p()
        cuda.call("cuStreamBeginCapture_v2{suffix}", stream, 0)
        captured = cuda.alloc_async(500 * MIB, stream, "{suffix}")[0]
        cuda.call("cuStreamEndCapture{suffix}", stream, ctypes.byref(graph))
        cuda.call("cuGraphInstantiateWithFlags", ctypes.byref(instance), graph, ctypes.c_uint64(0))
        tell([captured, cuda.used() >> 20, cuda.launch_graph(instance), cuda.fake_used() >> 20])
    """)

    assert told == [0, 900, 2, 900]


def test_a_graph_is_charged_once_however_often_it_runs(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        graph = cuda.graph(600 * MIB)
        tell([[cuda.launch_graph(graph) for _ in range(3)], cuda.used() >> 20])
    """)

    assert told == [[0, 0, 0], 600]


@pytest.mark.parametrize("how", ["", "_v2", "WithFlags", "WithParams", "WithParams_ptsz"])
def test_every_way_to_instantiate_a_graph_is_seen(limited: Container, how: str) -> None:
    told = limited.run(f"""
        cuda = Cuda()
        tell(cuda.launch_graph(cuda.graph(4000 * MIB, how={how!r})))
    """)

    assert told == 2


@pytest.mark.foreign
def test_each_card_has_its_own_limit(container: Container) -> None:
    container.claim(DeviceLimit(UUIDS[0], 100 << 20), DeviceLimit(UUIDS[1], 300 << 20))

    told = container.run("""
        cuda = Cuda(1)
        second = [cuda.alloc(200 * MIB)[0], cuda.alloc(200 * MIB)[0]]
        cuda.use(0)
        tell([second, cuda.alloc(200 * MIB)[0], cuda.alloc(100 * MIB)[0]])
    """)

    assert told == [[0, 2], 2, 0]


def test_a_stream_of_another_card_is_charged_there(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda(1)
        stream = ctypes.c_void_p()
        cuda.call("cuStreamCreate", ctypes.byref(stream), 0)
        cuda.use(0)
        cuda.alloc(900 * MIB)
        cuda.alloc_async(320 * MIB, stream)
        first = cuda.used()
        cuda.use(1)
        tell([first >> 20, cuda.used() >> 20])
    """)

    assert told[0] == 900
    assert told[1] == 320


def test_shares_of_one_card_in_several_claims_add_up(container: Container) -> None:
    container.claim(DeviceLimit(UUIDS[0], 300 << 20), uid="one")
    container.claim(DeviceLimit(UUIDS[0], 200 << 20), uid="two")

    told = container.run("""
        cuda = Cuda()
        total = cuda.info()[1]
        first, second = cuda.alloc(400 * MIB), cuda.alloc(200 * MIB)
        cuda.free(first[1])
        tell([total >> 20, first[0], second[0], cuda.used(), cuda.alloc(500 * MIB)[0]])
    """)

    assert told == [500, 0, 2, 0, 0]


def test_a_card_of_no_claim_is_not_limited(container: Container) -> None:
    container.claim(DeviceLimit(UUIDS[1], 100 << 20))

    assert container.run("tell(Cuda(0).alloc(4000 * MIB)[0])") == 0


def _ask(process: subprocess.Popen[str]) -> str:
    """Let a waiting program take one more step; returns what it told."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.foreign
def test_a_resize_holds_at_the_next_call(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 100 << 20)) / "control"
    process = container.start("""
        cuda = Cuda()
        for _ in sys.stdin:
            result, address = cuda.alloc(200 * MIB)
            tell([result, cuda.info()[1] >> 20])
            if not result:
                cuda.free(address)
    """)

    before = _ask(process)
    limit_files.update(path, Control((DeviceLimit(UUIDS[0], 300 << 20),)))
    larger = _ask(process)
    limit_files.update(path, Control((DeviceLimit(UUIDS[0], 50 << 20),)))

    assert [before, larger, _ask(process)] == ["[2, 100]", "[0, 300]", "[2, 50]"]


def test_the_drivers_own_number_counts_when_it_is_larger(container: Container) -> None:
    """Contexts and modules show in no call; the agent measures and the books follow."""
    limit = DeviceLimit(UUIDS[0], 1000 << 20, context_bytes=300 << 20)
    path = container.claim(limit)
    process = container.start("""
        cuda = Cuda()
        cuda.alloc(100 * MIB)
        for _ in sys.stdin:
            tell([cuda.used() >> 20, cuda.alloc(500 * MIB)[0]])
    """)

    assert _ask(process) == "[400, 0]"
    (seen,) = limit_files.read_usage(path / "usage", 1)
    told = DriverUsage(seen.pid, 70, seen.start_time, (700 << 20,))
    limit_files.update(
        path / "control", Control((limit,), measured_at_ns=1, processes={seen.slot: told})
    )

    assert _ask(process) == "[700, 2]"
