"""The process that starts a cluster's components and outlives the harness to end them.

A harness can be killed at any moment, by a signal that it cannot catch. So it starts no
component itself: it asks this process, which is the parent of them all, and three facts
leave nothing behind:

* The harness holds the other end of a socket. When it dies, however it dies, the kernel closes
  that end; the keeper reads end-of-file, ends everything and removes the directory.
* Starting through the keeper leaves no moment between "started" and "registered": a child is
  known to its parent from birth. The keeper collects no exit status before it forgets a child,
  so the process id of a known child can never belong to a stranger.
* Should the keeper itself be killed, the kernel kills its children (PR_SET_PDEATHSIG). What a
  child forks into the background becomes a child of the keeper (PR_SET_CHILD_SUBREAPER), so
  that is found at the end as well.

Run as `python -m hami_dra.lab.keeper DIRECTORY` with the socket as standard input. A request
and its answer are one line of JSON each; `hami_dra.lab.process` is the other end.
Every cluster waits for this process, so it must import nothing heavy.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hami_dra.lab.wait import until

Json = dict[str, Any]

PID_FILE = "keeper.pid"
LOG_FOLDER = "logs"

# From linux/prctl.h; Python has no binding.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class _Child:
    """A started program and how long it may take to end by itself."""

    process: subprocess.Popen[bytes]
    grace_s: float


class Keeper:
    """Starts, watches and ends the processes of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: dict[int, _Child] = {}
        self._is_detached = False
        self._requests: dict[str, Callable[[Json], Json]] = {
            "start": self._start,
            "poll": self._poll,
            "stop": self._stop,
            "detach": self._detach,
        }

    def serve(self, line: socket.socket) -> None:
        """Answer requests until the other end closes; then wait for a signal when detached."""
        # A harness that dies in the middle of a request is a harness that died.
        with contextlib.suppress(ConnectionError), line.makefile("rb") as requests:
            for request in requests:
                if request.endswith(b"\n"):
                    line.sendall(_encoded(self._answer(json.loads(request))))
        while self._is_detached:
            signal.pause()

    def end(self) -> None:
        """End every child, and what they forked, and remove the directory.

        Those with a grace go first: they may need the others to say goodbye.
        """
        self._terminate([pid for pid, child in self._children.items() if child.grace_s])
        self._terminate(list(self._children))
        for pid in iter(lambda: next(_offspring(), 0), 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        shutil.rmtree(self._directory)

    def _answer(self, request: Json) -> Json:
        try:
            return self._requests[request["do"]](request)
        except (OSError, ValueError) as error:
            return {"error": str(error)}

    def _start(self, request: Json) -> Json:
        """Start a program in a session of its own, so that signals reach its whole group."""
        log = self._directory / LOG_FOLDER / f"{request['name']}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                request["argv"],
                env=request["env"],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        self._children[process.pid] = _Child(process, request["grace_s"])
        return {"pid": process.pid}

    def _poll(self, request: Json) -> Json:
        return {"code": _exit_code(request["pid"])}

    def _stop(self, request: Json) -> Json:
        """Stop one child; its exit code is the answer."""
        [code] = self._terminate([request["pid"]])
        return {"code": code}

    def _detach(self, _request: Json) -> Json:
        self._is_detached = True
        return {}

    def _terminate(self, pids: list[int]) -> list[int]:
        """Ask the groups to end, kill what is left after the grace, and forget them."""
        grace_s = max((self._children[pid].grace_s for pid in pids), default=0)
        if grace_s:
            _signal_groups(pids, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                until(
                    lambda: all(_exit_code(pid) is not None for pid in pids),
                    what="the processes ended",
                    timeout_s=grace_s,
                    every_s=0.01,
                )
        _signal_groups(pids, signal.SIGKILL)
        return [self._children.pop(pid).process.wait() for pid in pids]


def _signal_groups(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        os.killpg(pid, number)


def _exit_code(pid: int) -> int | None:
    """Look at a child's exit code without collecting it, which would free its process id."""
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if state is None:
        return None
    return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status


def _offspring() -> Iterator[int]:
    """Find the children of this process, adopted ones too."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The command's name before these may hold blanks and parentheses.
            _state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                yield int(stat.parent.name)


def _die_with_parent() -> None:
    """Let the kernel kill this process, which is about to become a program, with the keeper."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise SystemExit


def _encoded(message: Json) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _furnish(directory: Path) -> None:
    """Put into the directory what the keeper itself needs there."""
    logs = directory / LOG_FOLDER
    logs.mkdir()
    (directory / PID_FILE).write_text(f"{os.getpid()}\n")
    # Whoever waits for the harness's output to end must not wait for the keeper's.
    with (logs / "keeper.log").open("ab") as output:
        os.dup2(output.fileno(), sys.stdout.fileno())
        os.dup2(output.fileno(), sys.stderr.fileno())


def main() -> None:
    """Keep one directory until told to end, and then remove it."""
    directory, line = Path(sys.argv[1]), socket.socket(fileno=sys.stdin.fileno())
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in _ENDINGS:
        signal.signal(number, _interrupt)
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        line.sendall(_encoded({"error": str(error)}))
        return
    keeper = Keeper(directory)
    try:
        _furnish(directory)
        line.sendall(_encoded({}))
        keeper.serve(line)
    finally:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        keeper.end()


if __name__ == "__main__":
    main()
