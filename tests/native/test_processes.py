"""Processes: whatever happens to one, the others go on, and the limit holds for all together."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hami_dra.lab import wait
from hami_dra.node import limit_files
from hami_dra.node.feed import Fed, Feeder
from hami_dra.node.limits import (
    PROCESS_GONE,
    Control,
    DeviceLimit,
    DriverUsage,
)
from tests.native.conftest import UUIDS, Built, Container
from tests.native.namespaces import unshare

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
    alive = {process.pid for process in started[100:]}

    def shown() -> list[tuple[int, int]] | None:
        usage = limit_files.read_usage(path / "usage", 1)
        found = [(process.pid, process.start_time) for process in usage]
        return found if alive <= {pid for pid, _ in found} else None

    # While all of them are alive: one that starts takes the slots of those that have ended.
    identities = wait.until(shown, what="all that were not killed have slots")
    said = {process.communicate("\n", timeout=240)[1] for process in started}

    assert [process.returncode for process in started[100:]] == [0] * 100
    assert said == {""}
    assert len(set(identities)) == len(identities) <= 200
    assert sum(pid in alive for pid, _ in identities) == 100


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


_ASKED: Final = """
for _ in sys.stdin: tell([number >> 20 for number in cuda.info()])
"""


def _told(program: subprocess.Popen[str], question: str = "") -> Any:
    """Return the next line that a program tells, after asking it for one."""
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(question)
    program.stdin.flush()
    return json.loads(program.stdout.readline())


def test_what_a_killed_container_held_is_free_for_its_next_one(limited: Container) -> None:
    """A restarted container has another namespace; the agent sees that nobody is left in it."""
    watching = limited.start("cuda = Cuda(); tell(0)" + _ASKED)
    assert _told(watching) == 0
    holding = "from tests.native.cuda import *; import sys; tell(Cuda().alloc(800 * MIB)[0]); sys.stdin.readline()"
    own = unshare("--pid", "--fork", "--kill-child", "--mount-proc")
    killed = limited.start([*own, sys.executable, "-S", "-c", holding])
    assert _told(killed) == 0
    path = limited.claims / "one"
    fed = Fed(path, Control(tuple(DeviceLimit(uuid, 1000 << 20) for uuid in UUIDS)))
    feeder = Feeder(None)
    feeder.feed([fed])
    assert _told(watching, "\n") == [200, 1000]

    killed.kill()

    def is_told() -> bool:
        feeder.feed([fed])
        return bool(limit_files.read_control(path / "control").processes)

    wait.until(is_told, what="the agent sees that the container is gone")
    assert limited.run("tell([number >> 20 for number in Cuda().info()])") == [1000, 1000]
    assert _told(watching, "\n") == [1000, 1000]


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
