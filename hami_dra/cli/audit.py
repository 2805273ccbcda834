"""The command `audit`; its work is loaded when it runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hami_dra.cli.exits import UNREADABLE, USAGE, fail
from hami_dra.cli.live import (
    EveryNamespace,
    Live,
    LiveContext,
    LiveKubeconfig,
    OneNamespace,
    check_namespaces,
)
from hami_dra.cli.options import PolicyFile
from hami_dra.cli.sources import UnreadableError
from hami_dra.cli.target import read_policy

EPILOG = (
    "Examples: hami-dra audit; hami-dra audit -n team-a -o markdown; hami-dra audit --html"
    " report.html. Exit codes: 0 nothing is rejected, 1 cluster unreachable or a read refused,"
    " 2 usage, 3 a workload is rejected."
)


class Output(StrEnum):
    """How the audit is printed."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"


def audit_command(
    *,
    namespace: OneNamespace = "",
    all_namespaces: EveryNamespace = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How the audit is printed.")
    ] = Output.TABLE,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a report to hand on as well: one file of HTML for itself."
        ),
    ] = None,
    date: Annotated[
        str, typer.Option(metavar="TEXT", help="Date that the report carries. Default: now.")
    ] = "",
    policy: PolicyFile = None,
    inventory: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Cards to reckon with in place of the cluster's; see hami-dra convert --help.",
        ),
    ] = "",
    context: LiveContext = "",
    kubeconfig: LiveKubeconfig = None,
) -> None:
    """Say what becomes of everything in a cluster that asks for GPUs in HAMi's words.

    Reads workloads, or the pods that nothing else stands for, LimitRanges, ResourceQuotas, and what
    Kueue and Volcano count: what converts, what is rejected and why, what needs a person, and what
    is asked for and taken by namespace. Nothing is written to the cluster.
    """
    check_namespaces(namespace, every=all_namespaces)
    if html == Path():  # an unset variable
        fail("--html: found an empty name, expected a file", code=USAGE)
    meaning = read_policy(policy)
    # Only here: the client library takes longer to import than most commands take to run.
    from hami_dra.cli.auditing.run import Asked, audit  # noqa: PLC0415 - see above

    asked = Asked(
        namespace=namespace,
        inventory=inventory,
        policy_file=policy,
        html=html,
        output=output.value,
        date=date,
    )
    try:
        audit(Live(context, kubeconfig), meaning, asked)
    except UnreadableError as error:
        fail(str(error), code=UNREADABLE)
