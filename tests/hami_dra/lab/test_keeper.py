"""Nothing outlives a harness, however it dies; small dummies play the components."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from hami_dra.lab.failure import ComponentError, LabError
from hami_dra.lab.keeper import PID_FILE
from hami_dra.lab.process import Launcher, stop_detached
from hami_dra.lab.wait import until

# A program that ends with the signal that asks it to, at once.
SLEEP = ["sleep", "1000"]
# One that does not listen, as a component that hangs.
DEAF = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1000; done"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "private"


@pytest.fixture
def launcher(directory: Path) -> Iterator[Launcher]:
    launcher = Launcher(directory)
    yield launcher
    launcher.stop_all()


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie, which only waits to be collected, does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def await_end(*pids: int) -> None:
    until(lambda: not any(map(is_alive, pids)), what=f"the processes {pids} are gone")


def await_log(log: Path, text: str) -> str:
    def shown() -> str | None:
        content = log.read_text()
        return content if text in content else None

    return until(shown, what=f"{log.name} shows {text!r}")


def harness(directory: Path, body: str) -> subprocess.Popen[str]:
    """Run a harness in a process of its own, which we can kill; it prints process ids."""
    code = f"""
        import os, signal, sys
        from pathlib import Path
        from hami_dra.lab.process import Launcher
        launcher = Launcher(Path({str(directory)!r}))
        print(launcher._keeper.pid, flush=True)
        {body}
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


START_AND_HANG = "print(launcher.start('a', ['sleep', '1000']).pid, flush=True); sys.stdin.read()"


def printed_pid(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_harness_leaves_no_process_and_no_directory(
    directory: Path, number: signal.Signals
) -> None:
    with harness(directory, START_AND_HANG) as process:
        keeper, child = printed_pid(process), printed_pid(process)
        assert is_alive(child)

        process.send_signal(number)

    await_end(child, keeper)
    assert not directory.exists()


def test_a_harness_killed_before_it_started_anything_leaves_no_directory(directory: Path) -> None:
    with harness(directory, "os.kill(os.getpid(), signal.SIGKILL)") as process:
        keeper = printed_pid(process)

    await_end(keeper)
    assert not directory.exists()


def test_a_killed_harness_leaves_no_grandchild_in_the_background(directory: Path) -> None:
    """As containerd's shims, which leave their group and their parent."""
    fork = "['sh', '-c', 'setsid sleep 1000 & echo $!']"
    body = f"log = launcher.start('a', {fork}).log; print(log, flush=True); sys.stdin.read()"
    with harness(directory, body) as process:
        keeper = printed_pid(process)
        assert process.stdout is not None
        log = Path(process.stdout.readline().strip())
        grandchild = int(await_log(log, "\n"))
        until(lambda: os.getsid(grandchild) == grandchild, what="it has a session of its own")

        process.kill()

    await_end(grandchild, keeper)


def test_a_killed_keeper_takes_its_processes_along(directory: Path) -> None:
    with harness(directory, START_AND_HANG) as process:
        keeper, child = printed_pid(process), printed_pid(process)

        os.kill(keeper, signal.SIGKILL)

        await_end(child)
        process.kill()


def test_a_harness_whose_keeper_was_killed_removes_the_directory(launcher: Launcher) -> None:
    os.kill(int((launcher.directory / PID_FILE).read_text()), signal.SIGKILL)

    launcher.stop_all()

    assert not launcher.directory.exists()


def test_the_directory_is_private(launcher: Launcher) -> None:
    assert launcher.directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_exists_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Its content would be removed with the cluster."""
    (tmp_path / "file").touch()

    with pytest.raises(LabError, match="File exists"):
        Launcher(tmp_path)

    assert (tmp_path / "file").exists()


def test_a_program_writes_both_outputs_to_its_log(launcher: Launcher) -> None:
    process = launcher.start("a", ["sh", "-c", "echo out; echo $WORD >&2"], env={"WORD": "error"})

    until(lambda: process.poll() is not None, what="it ended")

    assert process.log_tail() == "out\nerror"


def test_an_early_end_is_an_error_with_code_and_log(launcher: Launcher) -> None:
    process = launcher.start("broken", ["sh", "-c", "seq 30; exit 7"])
    until(lambda: process.poll() is not None, what="it ended")

    with pytest.raises(ComponentError, match="broken: ended with code 7; its log ends with:") as e:
        process.check()

    assert e.value.log_tail.splitlines() == [str(number) for number in range(11, 31)]


def test_a_program_that_runs_passes_the_check(launcher: Launcher) -> None:
    process = launcher.start("a", SLEEP)

    process.check()

    assert process.poll() is None


def test_a_program_that_does_not_exist_is_an_error(launcher: Launcher) -> None:
    with pytest.raises(LabError, match="no-such-program"):
        launcher.start("a", ["no-such-program"])


def test_a_program_is_asked_to_stop(launcher: Launcher) -> None:
    process = launcher.start("a", SLEEP)

    process.stop()

    assert process.poll() == -signal.SIGTERM


def test_a_program_that_does_not_listen_is_killed_after_its_grace(launcher: Launcher) -> None:
    process = launcher.start("deaf", DEAF, grace_s=0.05)
    await_log(process.log, "ready")

    process.stop()

    assert process.poll() == -signal.SIGKILL


def test_stopping_again_changes_nothing(launcher: Launcher) -> None:
    process = launcher.start("a", SLEEP)
    process.stop()

    process.stop()

    assert process.poll() == -signal.SIGTERM


def test_stopping_takes_the_whole_group(launcher: Launcher) -> None:
    """Also where the program itself ended before."""
    process = launcher.start("a", ["sh", "-c", "sleep 1000 & echo $!"])
    child = int(await_log(process.log, "\n"))
    until(lambda: process.poll() is not None, what="it ended")
    assert is_alive(child)

    process.stop()

    await_end(child)


def test_a_name_can_be_started_again(launcher: Launcher) -> None:
    """A restart continues the log."""
    first = launcher.start("a", ["echo", "hello"])
    until(lambda: first.poll() is not None, what="it ended")

    second = launcher.start("a", ["echo", "again"])
    until(lambda: second.poll() is not None, what="it ended")

    assert second.log_tail() == "hello\nagain"


def test_a_detached_cluster_outlives_its_harness_until_it_is_stopped(directory: Path) -> None:
    body = "print(launcher.start('a', ['sleep', '1000']).pid); launcher.detach()"
    with harness(directory, body) as process:
        keeper, child = printed_pid(process), printed_pid(process)
    assert process.returncode == 0
    assert int((directory / PID_FILE).read_text()) == keeper
    assert is_alive(child)

    stop_detached(directory)

    await_end(child, keeper)
    assert not directory.exists()


def test_a_detached_harness_stops_nothing(directory: Path) -> None:
    """So that a context manager may close after it."""
    launcher = Launcher(directory)
    launcher.detach()

    launcher.stop_all()

    assert directory.exists()
    stop_detached(directory)


def test_a_directory_without_keeper_is_an_error_that_says_what_to_do(directory: Path) -> None:
    with pytest.raises(LabError, match="give the directory that was printed"):
        stop_detached(directory)


def test_a_process_id_that_belongs_to_another_is_not_signalled(directory: Path) -> None:
    """It may have been given out again after the keeper was killed."""
    directory.mkdir()
    (directory / PID_FILE).write_text(f"{os.getpid()}\n")

    with pytest.raises(LabError, match=r"keeps no cluster in .* by hand"):
        stop_detached(directory)


def test_the_keeper_imports_nothing_heavy() -> None:
    """Every cluster waits for it."""
    code = "import sys, hami_dra.lab.keeper; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert not {"asyncio", "cryptography", "logging", "ssl", "typer"} & set(done.stdout.split())


def test_a_paused_process_stands_still_and_goes_on(launcher: Launcher) -> None:
    process = launcher.start("a", SLEEP)

    def state() -> str:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    with process.paused():
        until(lambda: state() == "T", what="it stands still")
        assert process.poll() is None

    until(lambda: state() != "T", what="it goes on")


def test_a_signal_ends_a_process_which_tells_its_code_and_is_no_strangers_afterwards(
    launcher: Launcher,
) -> None:
    process = launcher.start("a", SLEEP)

    process.signal(signal.SIGKILL)

    assert process.await_end() == -signal.SIGKILL
    process.stop()
    process.signal(signal.SIGKILL)
