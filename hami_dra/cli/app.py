"""The command line of `hami-dra`: arguments in, exit codes out; the work is done elsewhere."""

import sys
from typing import Annotated, Final, NoReturn

import typer

from hami_dra import __version__
from hami_dra.cli.convert import Conversion, convert
from hami_dra.cli.sources import UnreadableError, read
from hami_dra.migration import Cards, Policy

UNREADABLE: Final = 1
"""Exit code: an input cannot be read."""

NOT_ALL_CONVERTED: Final = 3
"""Exit code: some documents were passed through unchanged, and are listed (ruling 43)."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Run HAMi's GPU sharing manifests on Kubernetes Dynamic Resource Allocation (DRA).",
    epilog="Exit codes: 0 done, 1 input unreadable, 2 usage, 3 some documents not converted.",
)


@app.callback()
def root() -> None:
    """Keep subcommands even while there are few."""


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command("convert", epilog="Example: hami-dra convert -f deployment.yaml | kubectl apply -f -")
def convert_command(
    files: Annotated[
        list[str],
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Manifest to convert, YAML or JSON; - reads standard input. May be repeated.",
        ),
    ],
    kube_version: Annotated[
        str,
        typer.Option(
            metavar="MAJOR.MINOR",
            help="Version of the cluster; before 1.36, pods with several cards need another form.",
        ),
    ] = "",
) -> None:
    """Print manifests as the webhook would make their pods, with the templates they need.

    Comments, order and quotes stay; a document without GPU sharing resources is not touched at all.
    Manifests go to standard output, notices to standard error. Nothing is sent to any cluster.
    """
    try:
        policy = Policy(kubernetes=kube_version)
    except ValueError:
        _fail(f"--kube-version: found {kube_version!r}, expected a version such as 1.37", code=2)
    try:
        documents = [document for name in files for document in read(name)]
        conversion = convert(documents, policy, Cards())
    except UnreadableError as error:
        _fail(str(error), code=UNREADABLE)
    sys.stdout.write(conversion.output)
    _report(conversion)


def _report(conversion: Conversion) -> None:
    for finding in conversion.findings:
        typer.echo(str(finding), err=True)
    if conversion.rejected:
        _fail(
            f"{conversion.rejected} of {conversion.converted + conversion.rejected} GPU workloads"
            " could not be converted; their documents were passed through unchanged",
            code=NOT_ALL_CONVERTED,
        )


def _fail(message: str, *, code: int) -> NoReturn:
    typer.echo(f"hami-dra: {message}", err=True)
    raise typer.Exit(code)


def main() -> None:
    """Run the command line."""
    app()
