"""Run a long command and show on the terminal that it is still at work."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_TTY_PERIOD_S = 1
# A log of a CI run keeps every line.
_LOG_PERIOD_S = 30


def run(argv: Sequence[str], *, text: str, cwd: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Run a command to its end and return its exit code and what it said.

    Shows the text and the elapsed time on standard error: in one line that is rewritten on a
    terminal, in a line every half minute elsewhere.
    """
    is_tty = sys.stderr.isatty()
    start = time.monotonic()
    _show(text, is_tty=is_tty)
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(argv, cwd=cwd, env=env, stdout=said, stderr=said) as process,
    ):
        try:
            while _runs(process, _TTY_PERIOD_S if is_tty else _LOG_PERIOD_S):
                _show(f"{text}: {_clock(time.monotonic() - start)}", is_tty=is_tty)
        except BaseException:
            process.terminate()
            raise
        said.seek(0)
        output = said.read().decode(errors="replace")
    outcome = "failed" if process.returncode else "done"
    _show(f"{text}: {outcome} after {_clock(time.monotonic() - start)}", is_tty=is_tty)
    if is_tty:
        print(file=sys.stderr)
    return process.returncode, output


def _runs(process: subprocess.Popen[bytes], period_s: float) -> bool:
    """Wait up to a period for the end; tell whether it still runs."""
    try:
        process.wait(timeout=period_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def _show(line: str, *, is_tty: bool) -> None:
    # The escape clears what a longer line before may have left.
    print(
        *(("\r", line, "\x1b[K") if is_tty else (line,)),
        sep="",
        end="" if is_tty else "\n",
        file=sys.stderr,
        flush=True,
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
