"""Children of a process, however they come into being: each has books of its own, or none."""

import pytest

from tests.native.conftest import Built, Container
from tests.native.test_view import NVML


def test_a_child_that_was_forked_after_start_leaves_the_parents_books_alone(
    limited: Container,
) -> None:
    told = limited.run("""
        cuda = Cuda()
        address = cuda.alloc(500 * MIB)[1]
        child = os.fork()
        if not child:
            os._exit(cuda.free(address))
        _, status = os.waitpid(child, 0)
        tell([os.waitstatus_to_exitcode(status) != OK, cuda.used() >> 20, cuda.free(address), cuda.used()])
    """)

    assert told == [True, 500, 0, 0]


def test_a_child_that_was_forked_before_start_has_books_of_its_own(limited: Container) -> None:
    told = limited.run("""
        child = os.fork()
        cuda = Cuda()
        result = cuda.alloc(400 * MIB)[0]
        if not child:
            os._exit(result)
        _, status = os.waitpid(child, 0)
        tell([result, os.waitstatus_to_exitcode(status), cuda.alloc(600 * MIB)[0]])
    """)

    assert told == [0, 0, 0]


def test_a_child_of_a_process_that_asked_nvml_alone_has_books_of_its_own(
    limited: Container,
) -> None:
    """As a launcher of workers does; what a killed child held must not stay charged to its parent."""
    told = limited.run(
        NVML
        + """
before = memory(0)
reading, writing = os.pipe()
child = os.fork()
if not child:
    os.write(writing, b"%d" % Cuda().alloc(800 * MIB)[0])
    signal.pause()
result = int(os.read(reading, 1))
held = memory(0)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
tell([before, result, held, Cuda().alloc(400 * MIB)[0]])
"""
    )

    assert told == [[1000, 1000, 0], 0, [1000, 200, 800], 0]


def test_a_program_that_replaces_itself_begins_anew(limited: Container) -> None:
    told = limited.run("""
        if len(sys.argv) == 1:
            Cuda().alloc(800 * MIB)
            text = "from tests.native.cuda import *; c = Cuda(); tell([c.used(), c.alloc(1000 * MIB)[0]])"
            os.execv(sys.executable, [sys.executable, "-S", "-c", text, "again"])
    """)

    assert told == [0, 0]


_SPAWNS = {
    "vfork": """
        pid_t child = vfork();
        if (!child) {
            execve(arguments[0], arguments, environ);
            _exit(9);
        }""",
    "posix_spawn": """
        pid_t child = 0;
        posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ);""",
}


@pytest.mark.parametrize("how", _SPAWNS)
def test_a_spawned_child_is_one_more_process(built: Built, limited: Container, how: str) -> None:
    """It begins in the memory of its parent, whose books must not become its own."""
    source = f"""
    #include <dlfcn.h>
    #include <spawn.h>
    #include <stdio.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #define CALL(name, ...) ((int (*)())dlsym(driver, name))(__VA_ARGS__)
    extern char **environ;
    int main(int count, char **names) {{
        void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
        unsigned long long address = 0;
        CALL("cuInit", 0);
        CALL("cuDevicePrimaryCtxRetain", &context, 0);
        CALL("cuCtxSetCurrent", context);
        int result = CALL("cuMemAlloc_v2", &address, (size_t)600 << 20), status = 0;
        if (count > 1)
            return result;
        char *arguments[] = {{ names[0], "child", NULL }};
        {_SPAWNS[how]}
        waitpid(child, &status, 0);
        int freed = CALL("cuMemFree_v2", address);
        int again = CALL("cuMemAlloc_v2", &address, (size_t)1000 << 20);
        printf("[%d, %d, %d, %d]", result, WEXITSTATUS(status), freed, again);
        return 0;
    }}"""
    program = built.compile(limited.directory / "spawn", source, "-ldl")

    assert limited.run([str(program)]) == [0, 2, 0, 0]
