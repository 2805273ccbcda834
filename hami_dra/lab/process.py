"""The harness's end of the line to its keeper, and the processes started over it."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hami_dra.lab.failure import ComponentError, LabError
from hami_dra.lab.keeper import LOG_FOLDER, PID_FILE
from hami_dra.lab.wait import until

Json = dict[str, Any]

KEEPER_MODULE = "hami_dra.lab.keeper"

# Long enough for a program that says goodbye over the network, short enough to wait for.
DEFAULT_GRACE_S = 5.0

# What the keeper may take beyond the grace of its children: the kernel frees their memory.
_END_TIMEOUT_S = 120.0

LOG_TAIL_LINES = 20


@dataclass(slots=True)
class Process:
    """A program that the keeper runs.

    Attributes:
        name: names its log; unique among those that run at one time.
        pid: its process id, which is also its group and session.
        log: what it writes to standard output and standard error.
    """

    name: str
    pid: int
    log: Path
    _launcher: "Launcher" = field(repr=False)
    _code: int | None = field(default=None, init=False)
    _is_stopped: bool = field(default=False, init=False)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        if self._code is None:
            self._code = self._launcher.ask({"do": "poll", "pid": self.pid})["code"]
        return self._code

    def check(self) -> None:
        """Raise a `ComponentError` with the log's tail when it has ended."""
        code = self.poll()
        if code is not None:
            raise ComponentError(self.name, code, self.log_tail())

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def signal(self, number: signal.Signals) -> None:
        """Send it alone a signal; a process that has ended gets none."""
        # The keeper collects no exit code before `stop`, so the id cannot be a stranger's.
        if not self._is_stopped:
            os.kill(self.pid, number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop its clock meanwhile, as a machine that swaps or a disk that hangs would."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def await_end(self) -> int:
        """Wait until it has ended by itself and return its exit code."""
        return until(
            lambda: None if (code := self.poll()) is None else (code,), what=f"{self.name} ended"
        )[0]

    def stop(self) -> None:
        """End it and its group, by SIGTERM and after its grace by SIGKILL.

        Stopping it again changes nothing; stopping one that ended kills what it left behind.
        """
        if not self._is_stopped:
            self._code = self._launcher.ask({"do": "stop", "pid": self.pid})["code"]
            self._is_stopped = True


class Launcher:
    """Starts programs through one keeper, which ends them when this process dies.

    Attributes:
        directory: the private directory that the keeper makes and removes.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        with theirs:
            self._keeper = subprocess.Popen(
                [sys.executable, "-m", KEEPER_MODULE, str(directory)],
                stdin=theirs.fileno(),
                # Out of reach of the terminal's Ctrl-C, which is for the harness.
                start_new_session=True,
            )
        self._line = ours
        self._answers = ours.makefile("rb")
        try:
            self._receive()
        except BaseException:
            self._close()
            self._keeper.wait()
            raise

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        grace_s: float = DEFAULT_GRACE_S,
    ) -> Process:
        """Start a program in the private directory.

        Args:
            name: names its log.
            argv: the program, found on PATH unless it is a path, and its arguments.
            env: added to this process's environment.
            grace_s: between SIGTERM and SIGKILL; 0 for a program that has nothing to save.
        """
        request = {
            "do": "start",
            "name": name,
            "argv": list(argv),
            "env": {**os.environ, **(env or {})},
            "grace_s": grace_s,
        }
        pid = self.ask(request)["pid"]
        return Process(name, pid, self.directory / LOG_FOLDER / f"{name}.log", self)

    def detach(self) -> int:
        """Let everything run on after this process; return the keeper's process id.

        Whoever sends SIGTERM to that process ends everything.
        """
        self.ask({"do": "detach"})
        self._close()
        # The keeper is not awaited any more; tell Popen, or it warns of a child that runs on.
        self._keeper.returncode = 0
        return self._keeper.pid

    def stop_all(self) -> None:
        """End every process and remove the directory."""
        self._close()
        try:
            self._keeper.wait(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        if self.directory.exists() and self._keeper.returncode:
            # The keeper died of something; its children died with it.
            shutil.rmtree(self.directory)

    def ask(self, request: Json) -> Json:
        """Send one request to the keeper and return its answer."""
        with self._lock:
            try:
                self._line.sendall(json.dumps(request).encode() + b"\n")
            except OSError as cause:
                raise LabError(
                    f"keeper: found it gone ({cause}); start the cluster anew"
                ) from cause
            return self._receive()

    def _receive(self) -> Json:
        answer = self._answers.readline()
        if not answer:
            raise LabError(
                "keeper: found it gone, and its processes with it, expected it to answer;"
                " start the cluster anew"
            )
        message: Json = json.loads(answer)
        if "error" in message:
            raise LabError(f"keeper: {message['error']}")
        return message

    def _close(self) -> None:
        self._answers.close()
        self._line.close()


def stop_detached(directory: Path) -> None:
    """End a detached cluster through its keeper and wait until its directory is gone."""
    file = directory / PID_FILE
    try:
        pid = int(file.read_text())
    except (OSError, ValueError) as cause:
        raise LabError(
            f"{file}: found no process id ({cause}), expected that of a keeper; give the"
            " directory that was printed when the cluster started"
        ) from cause
    if not _is_keeper(pid, directory):
        raise LabError(
            f"{file}: found process {pid}, which keeps no cluster in {directory}; it was"
            f" killed, and its components with it: remove {directory} by hand"
        )
    os.kill(pid, signal.SIGTERM)
    until(
        lambda: not directory.exists(),
        what=f"the keeper {pid} removed {directory}",
        timeout_s=_END_TIMEOUT_S,
    )


def _is_keeper(pid: int, directory: Path) -> bool:
    """Tell whether the process id still belongs to this directory's keeper."""
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return False
    return KEEPER_MODULE in argv and str(directory.resolve()) in argv
