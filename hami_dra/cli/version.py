"""The command `version`: of this program, and of a cluster when one is named."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from hami_dra import __version__
from hami_dra.cli.live import Live, LiveContext, LiveKubeconfig

EPILOG = "Examples: hami-dra version; hami-dra version --context production -o json"


class Output(StrEnum):
    """How versions are printed."""

    TEXT = "text"
    JSON = "json"


def version_command(
    *,
    context: LiveContext = "",
    kubeconfig: LiveKubeconfig = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How versions are printed.")
    ] = Output.TEXT,
) -> None:
    """Print the version; with --context or --kubeconfig that of the cluster too."""
    versions = {"clientVersion": __version__}
    if context or kubeconfig:
        found = Live(context, kubeconfig).run(lambda session: session.get("/version"))
        versions["serverVersion"] = str(found.get("gitVersion") or "unknown")
    if output is Output.JSON:
        typer.echo(json.dumps(versions, indent=2))
        return
    for name, value in versions.items():
        typer.echo(f"{name.removesuffix('Version').capitalize()} Version: {value}")
