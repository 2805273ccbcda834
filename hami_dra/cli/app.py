"""The command line of `hami-dra`: which commands there are. Each is a module, imported when called.

`hami-dra <name>` is the function `<name>_command` of its module, or the module's own `app`.
"""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Final

import typer

from hami_dra.cli.exits import EPILOG, UNREADABLE, whole_output
from hami_dra.cli.lazy import LazyGroup

_COMMANDS: Final = {
    "convert": ("hami_dra.cli.convert", "Print manifests as the webhook makes them."),
    "diff": ("hami_dra.cli.diff", "Show what a conversion changes."),
    "explain": ("hami_dra.cli.explain", "Say what each container gets, and why."),
    "revert": ("hami_dra.cli.revert", "Print converted manifests as they were."),
    "policy": ("hami_dra.cli.policy", "Show, check and import policy files."),
    "install": ("hami_dra.cli.install", "Install the webhook in a cluster."),
    "uninstall": ("hami_dra.cli.uninstall", "Remove hami-dra from a cluster."),
    "audit": ("hami_dra.cli.audit", "Say what becomes of a whole cluster."),
    "preflight": ("hami_dra.cli.preflight", "Tell whether a cluster is ready."),
    "prune": ("hami_dra.cli.prune", "Delete templates that nothing needs."),
    "quota": ("hami_dra.cli.quota", "Show what claims take of legacy quotas."),
    "version": ("hami_dra.cli.version", "Print the version."),
}
"""Name to module and summary; one line each."""


class _Commands(LazyGroup):
    table = _COMMANDS


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run HAMi's GPU sharing manifests on Kubernetes Dynamic Resource Allocation (DRA).",
    epilog=EPILOG,
)


@app.callback()
def _root() -> None:
    """Make this a group, which Typer takes from a callback or from registered commands."""


def main() -> None:
    """Run the command line, under the name by which kubectl's users call it where they do."""
    if sys.stdout is None:
        # What is printed shall fail, and no file that is opened be taken for standard output.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if isinstance(sys.stdout, TextIOWrapper):
        # Manifests are UTF-8 wherever they are printed, and names of files the bytes that they are.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    is_plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    with whole_output(UNREADABLE):
        app(prog_name="kubectl hami-dra" if is_plugin else None)
