"""The C library below us: what the library asks of it at start, and what of old ones when it is needed."""

from pathlib import Path

import pytest

from tests.native.conftest import Built, Container

_LINKED = """
#include "cuda_min.h"
#include <stdio.h>
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(CUcontext *, int); int cuCtxSetCurrent(CUcontext);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int main(void) {
    CUcontext context; CUdeviceptr address;
    int started = cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0); cuCtxSetCurrent(context);
    int small = cuMemAlloc_v2(&address, 50ul << 20);
    printf("[%d, %d, %d]", started, small, cuMemAlloc_v2(&address, 200ul << 20));
    return 0;
}"""
_ALLOCATES = "cuda = Cuda(); tell([cuda.alloc(50 * MIB)[0], cuda.alloc(200 * MIB)[0]])"
_OLD = """
#include <dlfcn.h>
#include <string.h>
void *__libc_dlopen_mode(const char *name, int mode)
{
    int is_aside = !strcmp(name, "libdl.so.2") || !strcmp(name, "libpthread.so.0");
    return is_aside && mode == (int)0x80000002 ? dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD) : NULL;
}
void *__libc_dlsym(void *handle, const char *name)
{
    static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.12", "GLIBC_2.2.5" };
    void *found = NULL;
    if (!strcmp(name, "pthread_mutexattr_setrobusX"))
        name = "pthread_mutexattr_setrobust";
    for (int i = 0; !found && i < 4; i++)
        found = dlvsym(handle, name, versions[i]);
    return found;
}
"""
"""What libc itself has before 2.34. It finds one function that is out of sight in this C library."""


@pytest.fixture
def linked(built: Built, container: Container) -> Path:
    """A program that starts with the driver loaded; it may use 100 MiB."""
    container.variables["CUDA_DEVICE_MEMORY_LIMIT"] = "100m"
    return built.compile(container.directory / "linked", _LINKED, f"{built.fake}/libcuda.so.1")


def _patched(container: Container, *names: str) -> str:
    """Return a copy that asks for names which no C library has: their last letter is an X."""
    content = container.built.library.read_bytes()
    for name in names:
        asked = f"\0{name}\0".encode()
        assert asked in content
        content = content.replace(asked, f"\0{name[:-1]}X\0".encode())
    path = container.directory / "libpatched.so"
    path.write_bytes(content)
    return str(path)


def test_programs_start_without_files_that_new_c_libraries_keep_for_old_programs(
    built: Built, container: Container, linked: Path
) -> None:
    """Images may be put together without them. Empty, nothing that opens them starts."""
    for name in ("libdl.so.2", "libpthread.so.0"):
        (container.directory / name).touch()
    path = f"{container.directory}:{built.fake}"

    nothing = container.run(["true"], LD_LIBRARY_PATH=path, LD_PRELOAD=str(built.shipped))
    told = container.run([str(linked)], LD_LIBRARY_PATH=path, LD_PRELOAD=str(built.shipped))

    assert nothing is None
    assert told == [0, 0, 2]


def test_old_c_libraries_are_asked_for_what_they_keep_aside(
    built: Built, container: Container
) -> None:
    """Neither `dlvsym` nor all of libpthread is in sight, as in a program that loads the driver late."""
    library = _patched(container, "dlvsym", "pthread_mutexattr_setrobust")
    old = built.compile(container.directory / "libold.so", _OLD, "-shared", "-fPIC", "-ldl")

    told = container.run(_ALLOCATES, LD_PRELOAD=f"{old} {library}", CUDA_DEVICE_MEMORY_LIMIT="100m")

    assert told == [0, 2]


def test_memory_is_refused_where_the_c_library_has_no_robust_locks(container: Container) -> None:
    library = _patched(container, "pthread_mutexattr_setrobust")

    told = container.run(_ALLOCATES, LD_PRELOAD=library, CUDA_DEVICE_MEMORY_LIMIT="100m")

    assert told == [2, 2]
    assert container.said.count("in the C library, expected glibc 2.17") == 1
    assert "found no pthread_mutexattr_setrobusX" in container.said


def test_nothing_of_the_driver_is_reached_where_the_c_library_finds_no_names(
    container: Container, linked: Path
) -> None:
    not_found = 500
    library = _patched(container, "dlvsym")

    told = container.run([str(linked)], LD_PRELOAD=library)

    assert told == [not_found] * 3
    assert container.said.count("\n") == 1
    assert "found no dlsym in the C library" in container.said
