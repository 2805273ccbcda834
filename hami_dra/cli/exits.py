"""Exit codes, and how a command ends with one."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import typer

UNREADABLE: Final = 1
"""An input cannot be read, or a cluster cannot be reached."""

USAGE: Final = 2
"""The command line says nothing that can be done."""

NOT_ALL: Final = 3
"""Some documents were passed through unchanged, and are listed (ruling 43)."""

EPILOG: Final = (
    "Exit codes: 0 done, 1 input unreadable or cluster unreachable, 2 usage, 3 some documents"
    " could not be dealt with."
)
"""What every --help says of them."""


_NO_ROOM: Final = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE)
)
"""What becomes of a write to standard output: full, failed, closed, or nobody reads it."""


@contextmanager
def whole_output(code: int) -> Iterator[None]:
    """End the command with a code when not all that it printed could be written."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _NO_ROOM:
            raise
        if error.errno != errno.EPIPE:  # who closes a pipe has read enough
            typer.echo(f"hami-dra: standard output: {error.strerror}", err=True)
        # What is left goes nowhere, or Python would try it again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(code)


def fail(message: str, *, code: int) -> NoReturn:
    """End the command with a message on standard error."""
    typer.echo(f"hami-dra: {message}", err=True)
    raise typer.Exit(code)
