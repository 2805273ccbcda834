"""Interception: a caller gets what the driver would have given, swapped only where we change it."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.constants import P_FLAGS
from elftools.elf.elffile import ELFFile

from tests.native.conftest import NATIVE, Built, Container, make

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


@pytest.mark.foreign
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


@pytest.mark.foreign
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


@pytest.mark.foreign
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

    assert before_us == ["wrapped 1", "2 0 13050 1"]
    # A library that is loaded behind us is not called by name, as the name is ours.
    assert behind_us[-1] == "2 0 13050 1"


@pytest.mark.foreign
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


@pytest.mark.foreign
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


@pytest.mark.foreign
@pytest.mark.parametrize("driver", ["driver", "no driver"])
def test_look_ups_leave_the_error_that_they_would_leave_without_us(
    built: Built, container: Container, driver: str
) -> None:
    """Programs ask dlerror whether dlsym worked, also of names that only begin like the driver's."""
    other = built.compile(
        container.directory / "libother.so",
        "int curl_easy_init(void) { return 1; } int nvml_other(void) { return 1; }",
        "-shared",
        "-fPIC",
    )
    source = f"""
    #include <dlfcn.h>
    #include <stdio.h>
    static void ask(const char *where, void *handle, const char *name)
    {{
        dlerror();
        void *found = dlsym(handle, name);
        int is_error = dlerror() != NULL;
        printf("%s %s %d %d\\n", where, name, found != NULL, is_error);
    }}
    int main(void) {{
        void *other = dlopen("{other}", RTLD_NOW), *self = dlopen(NULL, RTLD_NOW);
        const char *names[] = {{ "curl_easy_init", "nvml_other", "cuInit", "cuNoSuch", "cuDriverGetVersion",
            "nvmlDeviceGetMemoryInfo", "nvmlInit_v2", "getpid" }};
        for (int round = 0; round < 2; round++) {{
            for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {{
                ask("default", RTLD_DEFAULT, names[i]);
                ask("next", RTLD_NEXT, names[i]);
                ask("self", self, names[i]);
                ask("other", other, names[i]);
            }}
            dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
        }}
        return 0;
    }}"""
    program = built.compile(container.directory / "ask", source, "-ldl")
    if driver == "no driver":
        container.variables["LD_LIBRARY_PATH"] = str(container.directory)

    assert _lines(container, program, str(built.library)) == _lines(container, program, "")


@pytest.mark.foreign
def test_programs_without_cuda_run_as_before(container: Container) -> None:
    texts = ("echo $((6*7))", "print(42)")
    shell, python = ("bash", "-c", texts[0]), (container.built.machine.python, "-c", texts[1])
    commands = [python] if container.built.machine.runner else [shell, python]
    for command in commands:
        process = container.start([*command], LD_LIBRARY_PATH="")
        told, said = process.communicate(timeout=60)

        assert (process.returncode, told.strip(), said) == (0, "42", "")


def test_a_machine_without_a_driver_says_so_as_before(container: Container) -> None:
    """A program that looks for a driver and finds none must not take us for one."""
    text = """
        try:
            ctypes.CDLL("libcuda.so.1")
            driver = "loaded"
        except OSError as error:
            driver = str(error)
        tell([driver, hasattr(ctypes.CDLL(None), "cuInit")])
    """

    with_us = container.run(text, LD_LIBRARY_PATH="")

    assert with_us == container.run(text, LD_LIBRARY_PATH="", LD_PRELOAD="")
    assert with_us[1] is False


@pytest.mark.foreign
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


@pytest.fixture(params=["x86_64", "aarch64"])
def shipped(request: pytest.FixtureRequest) -> Iterator[ELFFile]:
    """What `make native` makes for a processor."""
    with _release(request.param).open("rb") as file:
        yield ELFFile(file)


def _section(library: ELFFile, name: str) -> Any:
    return library.get_section_by_name(name)


def _symbols(library: ELFFile, *, is_defined: bool) -> set[str]:
    return {
        symbol.name
        for symbol in _section(library, ".dynsym").iter_symbols()
        if symbol.name and (symbol["st_shndx"] != "SHN_UNDEF") == is_defined
    }


def _dynamic(library: ELFFile) -> list[Any]:
    return list(_section(library, ".dynamic").iter_tags())


def test_the_library_exports_its_hooks_and_nothing_else(shipped: ELFFile) -> None:
    assert _symbols(shipped, is_defined=True) == {*_HOOKS, "dlsym"}


def test_the_library_needs_no_driver_and_touches_no_process_state(shipped: ELFFile) -> None:
    undefined = _symbols(shipped, is_defined=False)
    needed = {tag.needed for tag in _dynamic(shipped) if tag.entry.d_tag == "DT_NEEDED"}

    assert not [name for name in undefined if name.startswith(("cu", "nvml"))]
    assert not undefined & {
        "umask", "signal", "sigaction", "exit", "_exit", "abort", "dlsym",
        "setenv", "unsetenv", "putenv", "pthread_create", "fork",
    }  # fmt: skip
    assert needed == {"libc.so.6"}


def test_the_library_is_hardened_and_small(shipped: ELFFile) -> None:
    segments = {segment["p_type"]: segment for segment in shipped.iter_segments()}
    flags = {tag.entry.d_tag: tag.entry.d_val for tag in _dynamic(shipped)}
    loaded = [s["p_filesz"] for s in shipped.iter_segments() if s["p_type"] == "PT_LOAD"]

    assert segments["PT_GNU_STACK"]["p_flags"] == P_FLAGS.PF_R | P_FLAGS.PF_W
    assert "PT_GNU_RELRO" in segments
    assert "DT_BIND_NOW" in flags or flags.get("DT_FLAGS_1", 0) & 1
    assert sum(loaded) < 150_000


def test_nothing_of_the_tests_is_in_what_ships(built: Built) -> None:
    content = built.shipped.read_bytes()

    assert b"VGPU_CRASH_AT" not in content
    assert b"VGPU_CLAIMS_DIRECTORY" not in content


def _release(architecture: str) -> Path:
    directory = NATIVE / "build"
    target = directory / architecture / "libvgpu.so"
    zig = shlex.join([sys.executable, "-m", "ziglang"])
    make(f"BUILD={directory}", f"ZIG={zig}", str(target))
    return target


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_what_ships_loads_where_the_c_library_is_old(architecture: str) -> None:
    with _release(architecture).open("rb") as file:
        library = ELFFile(file)
        versions = {
            version.name
            for _, all_of_one in _section(library, ".gnu.version_r").iter_versions()
            for version in all_of_one
        }
        found = library.get_machine_arch()
        exported = _symbols(library, is_defined=True)
        needed = [tag.needed for tag in _dynamic(library) if tag.entry.d_tag == "DT_NEEDED"]
        weak = {
            symbol.name
            for symbol in _section(library, ".dynsym").iter_symbols()
            if symbol["st_info"]["bind"] == "STB_WEAK"
        }
        threads = {
            name for name in _symbols(library, is_defined=False) if name.startswith("pthread_")
        }

    # What others there are is in libpthread where the C library is old, and libpthread is not needed.
    assert threads == {"pthread_mutex_init", "pthread_mutex_lock", "pthread_mutex_unlock"}
    assert weak == {"dlvsym", "__libc_dlopen_mode", "__libc_dlsym"}
    assert needed == ["libc.so.6"]
    assert found == {"x86_64": "x64", "aarch64": "AArch64"}[architecture]
    assert exported == {*_HOOKS, "dlsym"}
    numbers = [tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in versions]
    assert max(numbers) <= (2, 17)


@pytest.mark.foreign(pages=(4096, 65536))
def test_what_ships_runs_in_programs(limited: Container) -> None:
    ships = _release(limited.built.machine.name)

    told = limited.run(
        "cuda = Cuda(); tell([cuda.alloc(900 * MIB)[0], cuda.alloc(200 * MIB)[0], cuda.launch()])",
        LD_PRELOAD=str(ships),
        CUDA_DEVICE_MEMORY_LIMIT="1000m",
        CUDA_DEVICE_SM_LIMIT="50",
    )

    assert told == [0, 2, 0]
