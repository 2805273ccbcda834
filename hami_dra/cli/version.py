"""`hami-dra version`."""

from typing import Final

import typer

from hami_dra import __version__

EPILOG: Final = "Example: hami-dra version"


def version_command() -> None:
    """Print the version."""
    typer.echo(__version__)
