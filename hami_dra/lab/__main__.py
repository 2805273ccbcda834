"""`python -m hami_dra.lab`: clusters on this host, from the command line."""

import math
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from hami_dra.lab import build as building
from hami_dra.lab import modules
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.demo import demo
from hami_dra.lab.failure import LabError
from hami_dra.lab.process import stop_detached
from hami_dra.lab.wait import until

app = typer.Typer(
    help="Run real Kubernetes control planes on this host: no container, no cloud, no trace.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Version = Annotated[
    str | None,
    typer.Option(
        metavar="VERSION",
        help=f"Kubernetes version, such as {modules.DEFAULT}; default: {modules.DEFAULT}.",
    ),
]


@app.callback()
def prepare() -> None:
    """Treat SIGTERM like Ctrl-C in every command, so that both stop what was started."""
    signal.signal(signal.SIGTERM, _interrupt)


@app.command()
def build(version: Version = None) -> None:
    """Build the control plane into the user's cache, unless it is there; print its path."""
    print(building.binary(version or modules.DEFAULT))


@app.command()
def up(
    *,
    version: Version = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once and leave it running.")
    ] = False,
) -> None:
    """Start a bare control plane and keep it until Ctrl-C or SIGTERM.

    Standard output holds the line that makes kubectl use it; the rest goes to standard error.
    """
    try:
        with Cluster.start(version=version) as cluster:
            print(f"Kubernetes {cluster.version} is ready at {cluster.server}", file=sys.stderr)
            print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}", flush=True)
            if detach:
                cluster.detach()
                command = f"python -m hami_dra.lab stop {cluster.directory}"
            else:
                command = "Ctrl-C"
            print(f"stop it with: {command}", file=sys.stderr)
            if not detach:
                until(cluster.check, what="a component ends", timeout_s=math.inf)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)


@app.command()
def stop(
    directory: Annotated[Path, typer.Argument(help="The directory of a cluster left running.")],
) -> None:
    """Stop a cluster that was left running, and remove its directory."""
    stop_detached(directory)


app.command()(demo)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; trouble is a message on stderr and exit code 1."""
    try:
        app()
    except (LabError, TimeoutError) as error:
        print(f"lab: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
