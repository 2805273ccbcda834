"""A thin hand on the CUDA driver API, for programs that tests start with the library preloaded.

It asks for functions as real programs do: `dlopen`, then `dlsym` in the handle.
"""

import ctypes
import json
from typing import Any, Final

MIB: Final = 1 << 20
OK: Final = 0
OUT_OF_MEMORY: Final = 2


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class AllocationProp(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class PoolProps(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("max_size", ctypes.c_size_t),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


class Array3D(ctypes.Structure):
    """CUDA_ARRAY3D_DESCRIPTOR; its beginning is close to the two-dimensional one."""

    _fields_ = (
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("flags", ctypes.c_uint),
    )


class Array2D(ctypes.Structure):
    """CUDA_ARRAY_DESCRIPTOR."""

    _fields_ = (
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
    )


class AllocNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = (
        ("pool", PoolProps),
        ("access", ctypes.c_void_p),
        ("access_count", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
    )


class ChildGraph(ctypes.Structure):
    """CUgraphNodeParams of a child graph; ownership 1 moves it."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
        ("graph", ctypes.c_void_p),
        ("ownership", ctypes.c_int),
        ("rest", ctypes.c_ubyte * 228),
    )


class InstantiateParams(ctypes.Structure):
    """CUDA_GRAPH_INSTANTIATE_PARAMS."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("error", ctypes.c_void_p),
        ("result", ctypes.c_int),
    )


class Cuda:
    """The driver, with a primary context of one device current."""

    def __init__(self, device: int = 0, *, initialise: bool = True) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.device = device
        if initialise:
            assert self.driver.cuInit(0) == OK
            self.use(device)

    def use(self, device: int) -> None:
        context = ctypes.c_void_p()
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == OK
        assert self.driver.cuCtxSetCurrent(context) == OK
        self.context = context
        self.device = device

    def call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self.driver, name)(*arguments))

    def alloc(self, size: int) -> tuple[int, int]:
        """Return the result and the address."""
        address = ctypes.c_uint64()
        result = self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return result, address.value

    def free(self, address: int) -> int:
        return self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def managed(self, size: int) -> tuple[int, int]:
        address = ctypes.c_uint64()
        result = self.call("cuMemAllocManaged", ctypes.byref(address), ctypes.c_size_t(size), 1)
        return result, address.value

    def pitched(self, width: int, height: int) -> tuple[int, int]:
        address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
        result = self.call(
            "cuMemAllocPitch_v2",
            ctypes.byref(address),
            ctypes.byref(pitch),
            ctypes.c_size_t(width),
            ctypes.c_size_t(height),
            4,
        )
        return result, address.value

    def alloc_async(self, size: int, stream: Any = None, suffix: str = "") -> tuple[int, int]:
        address = ctypes.c_uint64()
        result = self.call(
            "cuMemAllocAsync" + suffix, ctypes.byref(address), ctypes.c_size_t(size), stream
        )
        return result, address.value

    def alloc_from(self, pool: Any, size: int, suffix: str = "") -> tuple[int, int]:
        address = ctypes.c_uint64()
        result = self.call(
            "cuMemAllocFromPoolAsync" + suffix,
            ctypes.byref(address),
            ctypes.c_size_t(size),
            pool,
            None,
        )
        return result, address.value

    def free_async(self, address: int, suffix: str = "") -> int:
        return self.call("cuMemFreeAsync" + suffix, ctypes.c_uint64(address), None)

    def stream(self) -> Any:
        stream = ctypes.c_void_p()
        assert self.call("cuStreamCreate", ctypes.byref(stream), 0) == OK
        return stream

    def synchronize(self) -> int:
        return self.call("cuStreamSynchronize", None)

    def pool(self, location_type: int = 1, allocation_type: int = 1) -> Any:
        pool = ctypes.c_void_p()
        props = PoolProps(type=allocation_type, location=Location(location_type, self.device))
        assert self.call("cuMemPoolCreate", ctypes.byref(pool), ctypes.byref(props)) == OK
        return pool

    def default_pool(self, device: int) -> Any:
        pool = ctypes.c_void_p()
        assert self.call("cuDeviceGetDefaultMemPool", ctypes.byref(pool), device) == OK
        return pool

    def host_pool(self) -> Any:
        """Return the default pool of the host's memory."""
        pool, host = ctypes.c_void_p(), Location(2, 0)
        call = ("cuMemGetDefaultMemPool", ctypes.byref(pool), ctypes.byref(host), 1)
        assert self.call(*call) == OK
        return pool

    def create(self, size: int, location_type: int = 1) -> tuple[int, int]:
        handle = ctypes.c_uint64()
        prop = AllocationProp(type=1, location=Location(location_type, self.device))
        result = self.call(
            "cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(prop), 0
        )
        return result, handle.value

    def map(self, handle: int, size: int, address: int = 0) -> int:
        if not address:
            address = self.reserve(size)
        result = self.call(
            "cuMemMap",
            ctypes.c_uint64(address),
            ctypes.c_size_t(size),
            ctypes.c_size_t(0),
            ctypes.c_uint64(handle),
            0,
        )
        assert result == OK
        return address

    def reserve(self, size: int) -> int:
        address = ctypes.c_uint64()
        result = self.call(
            "cuMemAddressReserve",
            ctypes.byref(address),
            ctypes.c_size_t(size),
            ctypes.c_size_t(0),
            ctypes.c_uint64(0),
            0,
        )
        assert result == OK
        return address.value

    def unmap(self, address: int, size: int) -> int:
        return self.call("cuMemUnmap", ctypes.c_uint64(address), ctypes.c_size_t(size))

    def release(self, handle: int) -> int:
        return self.call("cuMemRelease", ctypes.c_uint64(handle))

    def retain(self, address: int) -> tuple[int, int]:
        handle = ctypes.c_uint64()
        result = self.call(
            "cuMemRetainAllocationHandle", ctypes.byref(handle), ctypes.c_void_p(address)
        )
        return result, handle.value

    def array2d(self, width: int, height: int) -> tuple[int, Any]:
        array, shape = ctypes.c_void_p(), Array2D(width, height, 1, 1)
        result = self.call("cuArrayCreate_v2", ctypes.byref(array), ctypes.byref(shape))
        return result, array

    def array3d(self, width: int, height: int, depth: int, flags: int = 0) -> tuple[int, Any]:
        array, shape = ctypes.c_void_p(), Array3D(width, height, depth, 1, 1, flags)
        result = self.call("cuArray3DCreate_v2", ctypes.byref(array), ctypes.byref(shape))
        return result, array

    def mipmapped(
        self, width: int, height: int, levels: int, *, depth: int = 0, flags: int = 0, form: int = 1
    ) -> tuple[int, Any]:
        array, shape = ctypes.c_void_p(), Array3D(width, height, depth, form, 1, flags)
        result = self.call(
            "cuMipmappedArrayCreate", ctypes.byref(array), ctypes.byref(shape), levels
        )
        return result, array

    def graph(self, size: int = 0, kernels: int = 0, how: str = "WithFlags") -> Any:
        """Instantiate a graph with one memory node, if it has a size, and some kernels."""
        return self.instantiate(self.blueprint({self.device: size} if size else {}, kernels), how)

    def blueprint(self, sizes: dict[int, int], kernels: int = 0) -> Any:
        """Make a graph with one memory node for each size, by card."""
        graph, node = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.call("cuGraphCreate", ctypes.byref(graph), 0) == OK
        for device, size in sizes.items():
            params = AllocNode(pool=PoolProps(location=Location(1, device)), bytes=size)
            arguments = (ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(params))
            assert self.call("cuGraphAddMemAllocNode", *arguments) == OK
        for _ in range(kernels):
            kernel = (ctypes.byref(node), graph, None, ctypes.c_size_t(0), None)
            assert self.call("cuGraphAddKernelNode_v2", *kernel) == OK
        return graph

    def nest(self, child: Any) -> Any:
        """Make a graph of one node: a graph, which it owns from then on."""
        graph, node = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.call("cuGraphCreate", ctypes.byref(graph), 0) == OK
        params = ChildGraph(type=4, graph=child, ownership=1)
        more = (graph, None, None, ctypes.c_size_t(0), ctypes.byref(params))
        assert self.call("cuGraphAddNode_v2", ctypes.byref(node), *more) == OK
        return graph

    def instantiate(self, graph: Any, how: str = "WithFlags") -> Any:
        instance = ctypes.c_void_p()
        rest = {"": (None, None, ctypes.c_size_t(0)), "_v2": (None, None, ctypes.c_size_t(0))}
        name, more = "cuGraphInstantiate" + how, rest.get(how, (None,))
        assert self.call(name, ctypes.byref(instance), graph, *more) == OK
        assert self.call("cuGraphDestroy", graph) == OK
        return instance

    def instantiate_and_upload(self, graph: Any, suffix: str = "") -> int:
        instance, params = ctypes.c_void_p(), InstantiateParams(flags=2)
        name = "cuGraphInstantiateWithParams" + suffix
        result = self.call(name, ctypes.byref(instance), graph, ctypes.byref(params))
        assert self.call("cuGraphDestroy", graph) == OK
        return result

    def upload(self, instance: Any, suffix: str = "") -> int:
        return self.call("cuGraphUpload" + suffix, instance, None)

    def launch_graph(self, instance: Any, suffix: str = "") -> int:
        return self.call("cuGraphLaunch" + suffix, instance, None)

    def launch(self, stream: Any = None) -> int:
        return self.call("cuLaunchKernel", None, 1, 1, 1, 1, 1, 1, 0, stream, None, None)

    def info(self) -> tuple[int, int]:
        """Return free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)) == OK
        return free.value, total.value

    def used(self) -> int:
        free, total = self.info()
        return total - free

    def fake_used(self, device: int = 0) -> int:
        """Return what the fake card really holds."""
        self.driver.fake_used.restype = ctypes.c_uint64
        return int(self.driver.fake_used(device))

    def fail(self, name: str, code: int, after: int = 0) -> None:
        """Let one later call of a function fail."""
        self.driver.fake_fail(name.encode(), after, code)


def tell(value: object) -> None:
    """Print a result for the test that started this program."""
    print(json.dumps(value), flush=True)
