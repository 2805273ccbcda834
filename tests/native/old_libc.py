"""`make native-old-libc ROOT=DIR`: the library on another C library than this machine's.

DIR is the unpacked root of an image with glibc 2.17 or newer, for this machine's processor. Before 2.34 much
of what the library uses is in libdl and libpthread, which a program may load late or out of sight. No
privilege is needed: the image's own loader runs our programs on its libraries.
"""

import argparse
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.native.conftest import NATIVE, Built, Container

_PROGRAM: Final = """
#include "cuda_min.h"
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(CUcontext *, int); int cuCtxSetCurrent(CUcontext);
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
    CUstream, void **, void **);
FIND
int main(void)
{
    CUcontext context; CUdeviceptr address; int child;
    int started = GET(cuInit)(0);
    GET(cuDevicePrimaryCtxRetain)(&context, 0); GET(cuCtxSetCurrent)(context);
    int small = GET(cuMemAlloc_v2)(&address, 50ul << 20);
    int large = GET(cuMemAlloc_v2)(&address, 200ul << 20);
    int launched = 0;
    for (int i = 0; i < 1000; i++)
        launched |= GET(cuLaunchKernel)(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    if (fork() == 0)
        _exit(0);
    wait(&child);
    printf("[%d, %d, %d, %d, %d]", started, small, large, launched, child);
    return 0;
}
"""
_EXPECTED: Final = [0, 0, 2, 0, 0]
"""Of `cuInit`, 50 and 200 of 100 MiB, a thousand launches, and a child's end."""
_LATE: Final = """
static void *driver;
#define GET(name) ((__typeof__(&name))dlsym( \\
    driver ? driver : (driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)), #name))
"""
_THREADED: Final = """
#include <pthread.h>
static void *nothing(void *unused) { return unused; }
__attribute__((constructor)) static void start_a_thread(void)
{ pthread_t thread; pthread_create(&thread, NULL, nothing, NULL); pthread_join(thread, NULL); }
"""
_WAYS: Final = {
    "linked with the driver": ("#define GET(name) name", ("{fake}/libcuda.so.1",)),
    "linked with libdl": (_LATE, ("-ldl",)),
    "linked with libdl and libpthread": (_LATE + _THREADED, ("-ldl", "-pthread")),
}
"""How programs reach the driver: what is before `main`, and flags."""


def _build(directory: Path) -> tuple[Built, list[str]]:
    """Build what tests use for glibc 2.17, with zig; return its compiler too."""
    zig = [sys.executable, "-m", "ziglang", "cc", "-target"]
    compiler = [*zig, f"{platform.machine()}-linux-gnu.2.17", "-fno-sanitize=undefined"]
    chosen = [f"BUILD={directory}", f"CC={shlex.join(compiler)}", f"MACHINE={platform.machine()}"]
    make = ["make", "-s", "-C", str(NATIVE), *chosen]
    subprocess.run([*make, "test-assets"], check=True)
    return Built(directory), compiler


def _loader(root: Path) -> Path:
    found = [*root.glob("lib64/ld-linux-*.so.2"), *root.glob("lib/ld-linux-*.so.1")]
    if not found:
        raise SystemExit(f"found no loader in {root}/lib64 or {root}/lib")
    while found[0].is_symlink():
        # What is absolute there is meant below the root.
        target = found[0].readlink()
        found[0] = (
            root / target.relative_to("/") if target.is_absolute() else found[0].parent / target
        )
    return found[0]


def _run(container: Container, root: Path, program: list[str]) -> object:
    folders = [container.built.fake, *(root / name for name in ("lib64", "usr/lib64"))]
    folders += [*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu")]
    path = ":".join(map(str, folders))
    loader = [str(_loader(root)), "--inhibit-cache", "--library-path", path]
    return container.run(
        [*loader, *program], CUDA_DEVICE_MEMORY_LIMIT="100m", CUDA_DEVICE_SM_LIMIT="50"
    )


def main() -> None:
    """Run a program for each way to reach the driver, and the image's `true`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="where the image is unpacked")
    root: Path = parser.parse_args().root.resolve()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        built, compiler = _build(directory / "build")
        container = Container(built, directory)
        _run(container, root, [str(root / "bin" / "true")])
        print("without the driver: as it should be")
        for way, (find, flags) in _WAYS.items():
            source = directory / "program.c"
            source.write_text(_PROGRAM.replace("FIND", find))
            program = directory / "program"
            told = [flag.format(fake=built.fake) for flag in flags]
            command = [*compiler, "-D_GNU_SOURCE", f"-I{NATIVE}/include", str(source), *told]
            subprocess.run([*command, "-o", str(program)], check=True)
            found = _run(container, root, [str(program)])
            print(f"{way}: {'as it should be' if found == _EXPECTED else f'wrong, {found}'}")
            if found != _EXPECTED:
                raise SystemExit(1)


if __name__ == "__main__":
    main()
