"""Processes: whatever happens to one, the others go on, and the limit holds for all together."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hami_dra.lab import wait
from hami_dra.node import limit_files
from hami_dra.node.limits import (
    PROCESS_GONE,
    USAGE_BYTES,
    Control,
    DeviceLimit,
    DriverUsage,
)
from tests.native.conftest import UUIDS, Built, Container
from tests.native.namespaces import unshare
from tests.native.test_view import NVML

_HOLD = """
cuda = Cuda()
tell(cuda.alloc({mib} * MIB)[0])
sys.stdin.readline()
"""


def _hold(container: Container, mib: int) -> subprocess.Popen[str]:
    """Start a process that holds memory until it is told to end."""
    process = container.start(_HOLD.format(mib=mib))
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n", process.communicate()
    return process


@pytest.mark.parametrize("label", ["make_ready", "occupy", "take", "give"])
def test_a_kill_at_any_point_harms_nobody_else(limited: Container, label: str) -> None:
    """The process dies inside of the section that the lock guards."""
    limited.kill_at(
        label,
        """
        cuda = Cuda()
        cuda.free(cuda.alloc(600 * MIB)[1])
    """,
    )

    told = limited.run("cuda = Cuda(); tell([cuda.alloc(1000 * MIB)[0], cuda.alloc(MIB)[0]])")

    assert told == [0, 2]
    assert limited.said.count("\n") == 1


def test_a_kill_while_another_process_is_buried_harms_nobody(limited: Container) -> None:
    limited.run("Cuda().alloc(600 * MIB)")
    limited.kill_at("bury", "Cuda().alloc(600 * MIB)")

    assert limited.run("tell(Cuda().alloc(1000 * MIB)[0])") == 0


def test_what_a_killed_process_held_is_free_again(limited: Container) -> None:
    holder = _hold(limited, 800)
    before = limited.run("tell(Cuda().alloc(400 * MIB)[0])")
    holder.kill()
    holder.wait()

    told = limited.run("cuda = Cuda(); tell([cuda.alloc(1000 * MIB)[0], cuda.used() >> 20])")

    assert (before, told) == (2, [0, 1000])


def test_what_a_zombie_held_is_free_again(limited: Container) -> None:
    """Its parent never waits for it, as the first process of many containers."""
    holder = _hold(limited, 800)
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)

    told = limited.run("cuda = Cuda(); tell([cuda.alloc(1000 * MIB)[0], cuda.used() >> 20])")

    assert told == [0, 1000]


def test_a_process_whose_first_thread_ended_still_holds_its_memory(
    built: Built, limited: Container
) -> None:
    source = """
    #include <dlfcn.h>
    #include <pthread.h>
    #include <stdio.h>
    static void *hold(void *argument) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
        unsigned long long address;
        ((int (*)(unsigned))dlsym(driver, "cuInit"))(0);
        ((int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
        ((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context);
        ((int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2"))(&address, 800 << 20);
        puts("0");
        fflush(stdout);
        getchar();
        return argument;
    }
    int main(void) {
        pthread_t thread;
        pthread_create(&thread, NULL, hold, NULL);
        pthread_exit(NULL);
    }"""
    program = built.compile(limited.directory / "thread", source, "-ldl", "-pthread")
    holder = limited.start([str(program)])
    assert holder.stdout is not None
    holder.stdout.readline()
    wait.until(
        lambda: ") Z " in Path(f"/proc/{holder.pid}/stat").read_text(),
        what="the first thread ends",
    )

    assert limited.run("tell(Cuda().alloc(400 * MIB)[0])") == 2


def test_the_view_follows_a_kill_without_an_allocation(limited: Container) -> None:
    holder = _hold(limited, 800)
    watcher = limited.start("""
        cuda = Cuda()
        tell(cuda.used() >> 20)
        sys.stdin.readline()
        deadline = time.monotonic() + 60
        while cuda.used() and time.monotonic() < deadline:
            time.sleep(0.01)
        tell(cuda.used())
    """)
    assert watcher.stdout is not None
    before = watcher.stdout.readline()
    holder.kill()
    holder.wait()
    told, _ = watcher.communicate("\n", timeout=120)

    assert (before, told) == ("800\n", "0\n")


def test_processes_share_one_limit_and_never_pass_it(limited: Container) -> None:
    """Sixteen at once grab all they get, again and again; the card's own peak is the witness."""
    racers = [
        limited.start("""
            cuda = Cuda()
            held = []
            sys.stdin.readline()
            for turn in range(200):
                result, address = cuda.alloc((turn % 7 + 1) * 24 * MIB)
                if result == OK:
                    held.append(address)
                else:
                    assert result == OUT_OF_MEMORY
                if result or turn == 199:
                    for address in held:
                        assert cuda.free(address) == OK
                    held.clear()
            cuda.driver.fake_peak.restype = ctypes.c_uint64
            tell(cuda.driver.fake_peak(0))
        """)
        for _ in range(16)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    peaks = [int(racer.communicate(timeout=240)[0]) for racer in racers]

    assert max(peaks) <= 1000 << 20
    assert max(peaks) > 800 << 20


def test_many_starts_at_once_get_slots_of_their_own(built: Built, container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    source = """
    #include <dlfcn.h>
    #include <stdio.h>
    int main(void) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned) = dlsym(driver, "cuInit");
        int result = init(0);
        getchar();
        return result;
    }"""
    program = built.compile(container.directory / "start", source, "-ldl")
    started = [container.start([str(program)]) for _ in range(200)]
    for process in started[:100]:
        process.kill()
    said = {process.communicate("\n", timeout=240)[1] for process in started}

    assert [process.returncode for process in started[100:]] == [0] * 100
    assert said == {""}
    usage = limit_files.read_usage(path / "usage", 1)
    identities = [(process.pid, process.start_time) for process in usage]
    assert len(set(identities)) == len(identities) <= 200
    assert len([pid for pid, _ in identities if pid in {p.pid for p in started[100:]}]) == 100


def test_crashing_starts_never_hang_a_survivor(limited: Container) -> None:
    survivor = _hold(limited, 100)
    crashing = [
        limited.start("""
            cuda = Cuda()
            cuda.alloc(5 * MIB)
            os.kill(os.getpid(), signal.SIGABRT if os.getpid() % 2 else signal.SIGKILL)
        """)
        for _ in range(50)
    ]
    for process in crashing:
        process.communicate(timeout=240)

    told = limited.run("cuda = Cuda(); tell([cuda.alloc(900 * MIB)[0], cuda.used() >> 20])")

    assert {process.returncode for process in crashing} <= {-signal.SIGABRT, -signal.SIGKILL}
    assert told == [0, 1000]
    assert survivor.poll() is None


def test_more_processes_than_slots_are_limited_each_for_itself(
    built: Built, container: Container
) -> None:
    container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    source = """
    #include <dlfcn.h>
    #include <stdio.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        int children[260], full = 0;
        for (int i = 0; i < 260; i++) {
            int up[2];
            pipe(up);
            if (!(children[i] = fork())) {
                void *driver = dlopen("libcuda.so.1", RTLD_NOW);
                int (*init)(unsigned) = dlsym(driver, "cuInit");
                write(up[1], "", init(0) == 0);
                pause();
            }
            close(up[1]);
            full += read(up[0], (char[1]) { 0 }, 1) == 1;
            close(up[0]);
        }
        for (int i = 0; i < 260; i++)
            kill(children[i], 9), waitpid(children[i], NULL, 0);
        return full != 260;
    }"""
    program = built.compile(container.directory / "full", source, "-include", "signal.h", "-ldl")

    container.run([str(program)])

    assert container.said.count("found more than 256 processes") == 4
    assert container.run("tell(Cuda().alloc(2000 * MIB)[0])") == 2
    assert container.said.count("\n") == 1


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


@pytest.mark.foreign
def test_threads_on_two_cards_leave_no_byte_behind(limited: Container) -> None:
    told = limited.run("""
        def work(device):
            mine = Cuda(device)
            for turn in range(200):
                plain, pooled = mine.alloc(MIB), mine.alloc_async(MIB)
                handle = mine.create(2 * MIB)
                for result, address in (plain, pooled):
                    assert result == OK and mine.free(address) == OK
                assert mine.release(handle[1]) == OK
            mine.synchronize()
        threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        used = []
        for device in (0, 1):
            cuda = Cuda(device)
            used += [cuda.used(), cuda.fake_used(device)]
        tell(used)
    """)

    assert told == [0, 0, 0, 0]


def test_closing_every_descriptor_takes_nothing_away(limited: Container) -> None:
    told = limited.run("""
        cuda = Cuda()
        os.closerange(3, 1000)
        tell([cuda.alloc(600 * MIB)[0], cuda.alloc(600 * MIB)[0]])
    """)

    assert told == [0, 2]


def _damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        os.truncate(path, 4096)
    elif how == "empty":
        os.truncate(path, 0)
    elif how == "a directory":
        path.unlink()
        path.mkdir()
    elif how == "a link":
        path.rename(path.with_name("other"))
        path.symlink_to("other")
    elif how == "a newer version":
        path.write_bytes(b"VGPUSAGE\x02\0\0\0\1\0\0\0".ljust(USAGE_BYTES, b"\0"))
    elif how == "noise":
        path.write_bytes(os.urandom(USAGE_BYTES))
    else:
        size = USAGE_BYTES.to_bytes(8, "little")
        path.write_bytes((b"VGPUSAGE\1\0\0\0\1\0\0\0" + size).ljust(USAGE_BYTES, b"\xff"))


@pytest.mark.foreign
@pytest.mark.parametrize(
    "how",
    ["missing", "truncated", "empty", "a directory", "a link", "a newer version", "noise", "ones"],
)
def test_a_damaged_usage_file_is_said_and_the_limit_still_holds(
    container: Container, how: str
) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    _damage(path / "usage", how)

    told = container.run("""
        cuda = Cuda()
        first = cuda.alloc(600 * MIB)
        second = cuda.alloc(600 * MIB)
        tell([first[0], second[0], cuda.free(first[1]), cuda.used()])
    """)

    assert told == [0, 2, 0, 0]
    lines = [line for line in container.said.splitlines() if "refused" not in line]
    assert len(lines) == 1
    assert "this process alone" in lines[0]


def test_books_get_memory_from_the_first_process_that_computes(limited: Container) -> None:
    usage = limited.claims / "one" / "usage"
    before = usage.stat()

    assert limited.run("tell(Cuda().alloc(600 * MIB)[0])") == 0

    assert before.st_size == usage.stat().st_size == USAGE_BYTES
    assert before.st_blocks == 0, "nobody pays for the books of a container that does not compute"
    assert usage.stat().st_blocks * 512 >= USAGE_BYTES


def test_books_that_find_no_memory_end_nobody(limited: Container) -> None:
    """To touch what has no memory behind it would end the program with SIGBUS."""
    full = limited.directory / "full"
    full.mkdir()
    script = f"""
        mount -t tmpfs -o size=256k none {full} && mkdir -p {full}/claims/one &&
        cd {limited.claims}/one && cp --sparse=always control usage {full}/claims/one &&
        dd if=/dev/zero of={full}/rest status=none
        test -s {full}/rest && exec {sys.executable} -S -c 'from tests.native.cuda import *
cuda = Cuda()
tell([cuda.alloc(600 * MIB)[0], cuda.alloc(600 * MIB)[0]])'
    """
    shell = [*unshare("--mount"), "sh", "-c", script]

    told = limited.run(shell, VGPU_CLAIMS_DIRECTORY=str(full / "claims"))

    assert told == [0, 2]
    assert "this process alone" in limited.said


@pytest.mark.parametrize("content", [b"\0", b"\xff", b"\x10"], ids=["zeros", "ones", "sixteens"])
def test_a_usage_file_that_is_overwritten_later_ends_nobody(
    container: Container, content: bytes
) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20)) / "usage"
    process = container.start("""
        cuda = Cuda()
        first = cuda.alloc(600 * MIB)
        tell(first[0])
        sys.stdin.readline()
        results = [cuda.alloc(600 * MIB)[0], cuda.free(first[1])]
        results.append(cuda.alloc(2000 * MIB)[0])
        tell(results)
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    with path.open("r+b") as usage:
        usage.seek(64)
        usage.write(content * (USAGE_BYTES - 64))

    told, said = process.communicate("\n", timeout=120)

    assert process.returncode == 0, said
    assert told.strip().endswith("0, 2]")


def test_a_lock_that_is_overwritten_later_leaves_what_is_held(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20)) / "usage"
    process = container.start("""
        cuda = Cuda()
        first = cuda.alloc(600 * MIB)
        tell(first[0])
        sys.stdin.readline()
        tell([cuda.alloc(600 * MIB)[0], cuda.used() >> 20, cuda.free(first[1]), cuda.used()])
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    with path.open("r+b") as usage:
        usage.seek(128)
        usage.write(b"\xff" * 48)

    told, said = process.communicate("\n", timeout=120)

    assert told == "[2, 600, 0, 0]\n", said
    assert "this process alone" in said


@pytest.mark.parametrize("content", [b"", b"VGPUCTRL\x02\0\0\0", b"x" * 79936])
def test_a_damaged_control_file_grants_what_the_environment_says(
    container: Container, content: bytes
) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    (path / "control").write_bytes(content)

    closed = container.run("tell(Cuda().alloc(MIB)[0])")
    fallback = container.run(
        """
        cuda = Cuda()
        tell([cuda.alloc(60 * MIB)[0], cuda.alloc(60 * MIB)[0]])
    """,
        CUDA_DEVICE_MEMORY_LIMIT="100m",
    )

    assert (closed, fallback) == (2, [0, 2])


def test_an_update_that_the_agent_did_not_finish_changes_nothing(container: Container) -> None:
    path = container.claim(DeviceLimit(UUIDS[0], 1000 << 20))
    with (path / "control").open("r+b") as control:
        control.seek(16)
        control.write((7).to_bytes(8, "little"))

    told = container.run(
        "cuda = Cuda(); tell([cuda.alloc(600 * MIB)[0], cuda.alloc(600 * MIB)[0]])"
    )

    assert told == [0, 2]


def test_processes_of_another_pid_namespace_are_not_taken_for_dead(limited: Container) -> None:
    """Their PIDs mean nothing here; only the agent can say that they are gone."""
    path = limited.claims / "one"
    text = "from tests.native.cuda import *; import sys; c = Cuda(); tell(c.alloc(800 * MIB)[0]); sys.stdin.readline()"
    holder = limited.start(
        [*unshare("--pid", "--fork", "--mount-proc"), sys.executable, "-S", "-c", text]
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "0\n", holder.communicate()

    alive = limited.run("cuda = Cuda(); tell([cuda.alloc(400 * MIB)[0], cuda.used() >> 20])")
    (seen,) = [p for p in limit_files.read_usage(path / "usage", 2) if p.devices[0].total_bytes]
    holder.communicate("\n", timeout=60)
    unknown = limited.run("tell(Cuda().alloc(400 * MIB)[0])")
    gone = DriverUsage(seen.pid, PROCESS_GONE, seen.start_time, ())
    limits = tuple(DeviceLimit(uuid, 1000 << 20) for uuid in UUIDS)
    limit_files.update(path / "control", Control(limits, processes={seen.slot: gone}))

    assert (alive, unknown) == ([2, 800], 2)
    assert limited.run("tell(Cuda().alloc(1000 * MIB)[0])") == 0


def test_another_user_of_the_container_shares_the_books(container: Container) -> None:
    container.variables.update(CUDA_DEVICE_MEMORY_LIMIT="1000m")
    container.directory.chmod(0o777)
    holder = _hold(container, 800)

    told = container.run(f"""
        cache = {str(container.directory / "cache")!r}
        mode = os.stat(cache).st_mode & 0o777
        tell([oct(mode), Cuda().alloc(400 * MIB)[0]])
    """)

    assert told == ["0o666", 2]
    assert holder.poll() is None


@pytest.fixture
def open_to_all(built: Built) -> Iterator[Container]:
    """A container whose files every user reaches, as in a real one."""
    with tempfile.TemporaryDirectory() as name:
        made = Container(built, Path(name))
        made.directory.chmod(0o755)
        made.claim(DeviceLimit(UUIDS[0], 1000 << 20, core_percent=50))
        cards = made.directory / "cards"
        cards.touch()
        cards.chmod(0o666)
        yield made
        made.stop()


def test_processes_of_two_users_share_one_limit(open_to_all: Container) -> None:
    """Where the tests may not change their user, both processes are of one."""
    holder = _hold(open_to_all, 800)
    other = open_to_all.start("""
        cuda = Cuda(initialise=False)
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        assert cuda.driver.cuInit(0) == OK
        cuda.use(0)
        tell([cuda.alloc(400 * MIB)[0], cuda.alloc(100 * MIB)[0], cuda.used() >> 20, cuda.launch()])
        sys.stdin.readline()
    """)
    assert other.stdout is not None
    told = other.stdout.readline()
    other.kill()
    other.wait()
    left = open_to_all.run("cuda = Cuda(); tell([cuda.alloc(200 * MIB)[0], cuda.used() >> 20])")

    assert told == "[2, 0, 900, 0]\n"
    assert left == [0, 1000]
    assert holder.poll() is None
