"""Exit codes, and how a command ends with one."""

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


def fail(message: str, *, code: int) -> NoReturn:
    """End the command with a message on standard error."""
    typer.echo(f"hami-dra: {message}", err=True)
    raise typer.Exit(code)
