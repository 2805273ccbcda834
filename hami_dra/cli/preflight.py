"""The command `preflight`; its work is loaded when it runs."""

from enum import StrEnum
from typing import Annotated

import typer

from hami_dra.cli.live import Live, LiveContext, LiveKubeconfig
from hami_dra.cli.options import PolicyFile
from hami_dra.cli.target import read_policy

EPILOG = (
    "Examples: hami-dra preflight; hami-dra preflight --context production -o markdown."
    " Exit codes: 0 no fact fails, 1 cluster unreachable, 2 usage, 3 a fact fails."
)


class Output(StrEnum):
    """How facts are printed."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


def preflight_command(
    *,
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", metavar="NAME", help="Where the dry runs of pods go."),
    ] = "default",
    policy: PolicyFile = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure how fast claims are generated: 150 pods that nobody schedules, in a"
            " namespace that goes again.",
        ),
    ] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How facts are printed.")
    ] = Output.TABLE,
    context: LiveContext = "",
    kubeconfig: LiveKubeconfig = None,
) -> None:
    """Tell whether a cluster is ready to run GPU pods by claims, and what to do where it is not.

    Every fact passes, warns or fails; one that your account may not read is unknown, which is
    neither. Nothing is written unless you ask to --measure: pods and claims are sent as dry runs.
    """
    meaning = read_policy(policy)
    # Only here: the client library takes longer to import than most commands take to run.
    from hami_dra.cli.readiness import preflight  # noqa: PLC0415 - see above

    preflight(
        Live(context, kubeconfig), meaning, namespace=namespace, measured=measure, output=output
    )
