"""Interception: a caller gets what the driver would have given, swapped only where we change it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import NATIVE, Built, Container

_TABLE = (NATIVE / "src" / "hooks.def").read_text()
_HOOKS = re.findall(r"^(?:HOOK|LAUNCH|VIEW)\((\w+),", _TABLE, re.MULTILINE)
_FAKE = (NATIVE / "tests" / "fake" / "fake.def").read_text()
_FAKE_NAMES = re.findall(r"^F\((\w+), (\w+), (\d+), ([01])\)", _FAKE, re.MULTILINE)

_WHO = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdint.h>
#include <string.h>

/* The name of a function, and whether it is the driver's or ours. */
static void say(const char *asked, void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info) || !info.dli_sname) {
        printf("%s nothing\n", asked);
        return;
    }
    printf("%s %s %s\n", asked, info.dli_sname, strstr(info.dli_fname, "libvgpu") ? "ours" : "theirs");
}
"""


def _lines(container: Container, program: Path, preload: str) -> list[str]:
    process = container.start([str(program)], LD_PRELOAD=preload)
    told, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    return told.splitlines()


def test_every_look_up_gives_what_the_driver_gave(built: Built, container: Container) -> None:
    """All names, all versions, all flags, both ways to ask: the same function, swapped where it is hooked."""
    bases = sorted({base for _, base, _, _ in _FAKE_NAMES})
    versions = sorted({int(version) for _, _, version, _ in _FAKE_NAMES} | {1000, 99000})
    source = (
        _WHO
        + f"""
static const char *const bases[] = {{ {", ".join(f'"{name}"' for name in [*bases, "cuNoSuch"])} }};
static const char *const symbols[] = {{ {", ".join(f'"{row[0]}"' for row in _FAKE_NAMES)}, "cuNoSuch" }};
static const int versions[] = {{ {", ".join(map(str, versions))} }};
int main(void)
{{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*get)(const char *, void **, int, uint64_t, int *) = dlsym(driver, "cuGetProcAddress_v2");
    int (*get_v1)(const char *, void **, int, uint64_t) = dlsym(driver, "cuGetProcAddress");
    for (unsigned i = 0; i < sizeof symbols / sizeof *symbols; i++)
        say(symbols[i], dlsym(driver, symbols[i]));
    for (unsigned i = 0; i < sizeof bases / sizeof *bases; i++)
        for (unsigned v = 0; v < sizeof versions / sizeof *versions; v++)
            for (uint64_t flags = 0; flags < 5; flags++) {{
                char asked[128];
                void *found = NULL, *found_v1 = NULL;
                int status = -1;
                int result = get(bases[i], &found, versions[v], flags, &status);
                int result_v1 = get_v1(bases[i], &found_v1, versions[v], flags);
                snprintf(asked, sizeof asked, "%s/%d/%d/%d/%d", bases[i], versions[v], (int)flags, result, status);
                say(asked, result ? NULL : found);
                snprintf(asked, sizeof asked, "v1 %s/%d/%d/%d", bases[i], versions[v], (int)flags, result_v1);
                say(asked, result_v1 ? NULL : found_v1);
            }}
    return 0;
}}
"""
    )
    program = built.compile(container.directory / "look", source, "-ldl")

    without = _lines(container, program, "")
    with_us = _lines(container, program, str(built.library))

    def expected(line: str) -> str:
        words = line.split(" ")
        hooked = words[-1] == "theirs" and words[-2] in _HOOKS
        return " ".join([*words[:-1], "ours"]) if hooked else line

    assert len(without) > 10_000
    assert with_us == [expected(line) for line in without]


def test_a_program_linked_against_the_driver_reaches_us(built: Built, container: Container) -> None:
    source = """
    #include "cuda_min.h"
    #include <stdio.h>
    int cuInit(unsigned); int cuDevicePrimaryCtxRetain(CUcontext *, int); int cuCtxSetCurrent(CUcontext);
    int cuMemAlloc_v2(CUdeviceptr *, size_t);
    int main(void) {
        CUcontext context; CUdeviceptr address;
        cuInit(0); cuDevicePrimaryCtxRetain(&context, 0); cuCtxSetCurrent(context);
        printf("%d\\n", cuMemAlloc_v2(&address, 200ul << 20));
        return 0;
    }"""
    program = built.compile(container.directory / "linked", source, f"{built.fake}/libcuda.so.1")

    container.variables["CUDA_DEVICE_MEMORY_LIMIT"] = "100m"

    assert _lines(container, program, str(built.library)) == ["2"]


def test_a_wrapper_finds_the_next_function_and_not_itself(
    built: Built, container: Container
) -> None:
    """With the wrong caller, RTLD_NEXT gives a wrapper its own function back, which then loops."""
    wrapper = """
    #include <dlfcn.h>
    #include <stddef.h>
    #include <stdio.h>
    int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
        int (*next)(unsigned long long *, size_t) = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
        printf("wrapped %d\\n", next != cuMemAlloc_v2);
        return next ? next(address, bytes) : 999;
    }
    int cuDriverGetVersion(int *version) {
        int (*next)(int *) = dlsym(RTLD_NEXT, "cuDriverGetVersion");
        return next == cuDriverGetVersion ? 999 : next(version);
    }
    void *malloc_usable(void) { return dlsym(RTLD_NEXT, "malloc"); }
    """
    library = built.compile(
        container.directory / "libwrapper.so", wrapper, "-shared", "-fPIC", "-ldl"
    )
    source = """
    #include "cuda_min.h"
    #include <stdio.h>
    int cuInit(unsigned); int cuDevicePrimaryCtxRetain(CUcontext *, int); int cuCtxSetCurrent(CUcontext);
    int cuMemAlloc_v2(CUdeviceptr *, size_t); int cuDriverGetVersion(int *); void *malloc_usable(void);
    int main(void) {
        CUcontext context; CUdeviceptr address; int version = 0;
        cuInit(0); cuDevicePrimaryCtxRetain(&context, 0); cuCtxSetCurrent(context);
        int result = cuMemAlloc_v2(&address, 200ul << 20);
        int other = cuDriverGetVersion(&version);
        printf("%d %d %d %d\\n", result, other, version, malloc_usable() != NULL);
        return 0;
    }"""
    program = built.compile(
        container.directory / "wrapped",
        source,
        f"-Wl,-rpath,{container.directory}",
        str(library),
        f"{built.fake}/libcuda.so.1",
    )
    container.variables["CUDA_DEVICE_MEMORY_LIMIT"] = "100m"

    before_us = _lines(container, program, f"{library} {built.library}")
    behind_us = _lines(container, program, str(built.library))

    assert before_us == ["wrapped 1", "2 0 13000 1"]
    # A library that is loaded behind us is not called by name, as the name is ours.
    assert behind_us[-1] == "2 0 13000 1"


def test_a_function_of_another_library_is_left_alone(built: Built, container: Container) -> None:
    library = built.compile(
        container.directory / "libother.so",
        "int cuInit(unsigned f) { return 77; } int cuOwn(void) { return 78; }",
        "-shared",
        "-fPIC",
    )
    source = f"""
    #include <dlfcn.h>
    #include <stdio.h>
    int main(void) {{
        void *other = dlopen("{library}", RTLD_NOW | RTLD_LOCAL);
        int (*init)(unsigned) = dlsym(other, "cuInit");
        int (*own)(void) = dlsym(other, "cuOwn");
        dlopen("libcuda.so.1", RTLD_NOW);
        int (*again)(unsigned) = dlsym(other, "cuInit");
        printf("%d %d %d\\n", init(0), own(), again(0));
        return 0;
    }}"""
    program = built.compile(container.directory / "other", source, "-ldl")

    assert _lines(container, program, str(built.library)) == ["77 78 77"]


def test_the_program_itself_has_a_driver_only_when_one_is_loaded(
    built: Built, container: Container
) -> None:
    """Our exports must not make a program without a driver believe that it has one."""
    source = (
        _WHO
        + """
    int main(void) {
        void *self = dlopen(NULL, RTLD_NOW);
        say("default", dlsym(RTLD_DEFAULT, "cuInit"));
        say("self", dlsym(self, "cuInit"));
        say("missing", dlsym(self, "cuNoSuch"));
        printf("%d\\n", dlerror() != NULL);
        dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        say("default", dlsym(RTLD_DEFAULT, "cuInit"));
        say("self", dlsym(self, "cuInit"));
        say("unhooked", dlsym(RTLD_DEFAULT, "cuDriverGetVersion"));
        return 0;
    }"""
    )
    program = built.compile(container.directory / "self", source, "-ldl")

    assert _lines(container, program, str(built.library)) == [
        "default nothing",
        "self nothing",
        "missing nothing",
        "1",
        "default cuInit ours",
        "self cuInit ours",
        "unhooked cuDriverGetVersion theirs",
    ]


@pytest.mark.parametrize(
    "command", [["bash", "-c", "echo $((6*7))"], ["python3", "-c", "print(42)"]]
)
def test_programs_without_cuda_run_as_before(container: Container, command: list[str]) -> None:
    process = container.start(command, LD_LIBRARY_PATH="")
    told, said = process.communicate(timeout=60)

    assert (process.returncode, told.strip(), said) == (0, "42", "")


def test_nothing_happens_before_the_driver_is_initialised(container: Container) -> None:
    told = container.run(
        """
        before = sorted(os.listdir("/proc/self/fd"))
        umask = os.umask(0o077)
        cuda = Cuda(initialise=False)
        cuda.driver.cuMemAlloc_v2
        claimed = os.path.exists(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"])
        cuda = Cuda()
        handlers = [signal.getsignal(number) == signal.SIG_DFL for number in (signal.SIGUSR1, signal.SIGUSR2)]
        tell([claimed, os.umask(umask), handlers, sorted(os.listdir("/proc/self/fd")) == before])
    """,
        CUDA_DEVICE_MEMORY_LIMIT="100m",
    )

    assert told == [False, 0o077, [True, True], True]


def _dump(path: Path, *options: str) -> str:
    objdump = shutil.which("objdump")
    assert objdump, "binutils come with every compiler but zig's"
    return subprocess.run(
        [objdump, *options, str(path)], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_the_library_exports_its_hooks_and_nothing_else(built: Built) -> None:
    lines = _dump(built.shipped, "-T").splitlines()
    defined = {line.split()[-1] for line in lines if " g " in line and "*UND*" not in line}

    assert defined == {*_HOOKS, "dlsym"}


def test_the_library_needs_no_driver_and_touches_no_process_state(built: Built) -> None:
    undefined = {
        line.split()[-1] for line in _dump(built.shipped, "-T").splitlines() if "*UND*" in line
    }
    needed = set(re.findall(r"NEEDED\s+(\S+)", _dump(built.shipped, "-p")))

    assert not [name for name in undefined if name.startswith(("cu", "nvml"))]
    assert not undefined & {
        "umask", "signal", "sigaction", "exit", "_exit", "abort", "dlsym",
        "setenv", "unsetenv", "putenv", "pthread_create", "fork",
    }  # fmt: skip
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0"}


def test_the_library_is_hardened_and_small(built: Built) -> None:
    headers = _dump(built.shipped, "-p")

    assert re.search(r"STACK off.*\n.*flags rw-", headers)
    assert "RELRO" in headers
    assert "BIND_NOW" in headers or re.search(r"FLAGS_1\s+0x0*1\b", headers)
    code = sum(
        int(row[0], 16) for row in re.findall(r"LOAD off[^\n]*\n\s+filesz 0x(\w+)()", headers)
    )
    assert code < 150_000


def test_nothing_of_the_tests_is_in_what_ships(built: Built) -> None:
    content = built.shipped.read_bytes()

    assert b"VGPU_CRASH_AT" not in content
    assert b"VGPU_CLAIMS_DIRECTORY" not in content
