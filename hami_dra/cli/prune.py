"""The command `prune`; its work is loaded when it runs."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer

from hami_dra.cli.duration import duration
from hami_dra.cli.exits import USAGE, fail
from hami_dra.cli.live import (
    EveryNamespace,
    Live,
    LiveContext,
    LiveKubeconfig,
    OneNamespace,
    check_namespaces,
)

EPILOG = (
    "Examples: hami-dra prune; hami-dra prune -n team-a --older-than 30d --yes."
    " Exit codes: 0 done, 1 cluster unreachable or a read refused, 2 usage, 3 a template could not"
    " be deleted."
)


class Output(StrEnum):
    """How the list is printed."""

    TABLE = "table"
    JSON = "json"


def prune_command(
    *,
    namespace: OneNamespace = "",
    all_namespaces: EveryNamespace = False,
    older_than: Annotated[
        timedelta,
        typer.Option(
            parser=duration,
            metavar="SPAN",
            help="How long a template must have been unused: since the webhook recorded it, or"
            " since its creation where nobody did. 0s deletes all that are unused now.",
        ),
    ] = "7d",  # type: ignore[assignment]  # typer parses defaults like arguments
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would go; the default without --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete what is unused.")] = False,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How the list is printed.")
    ] = Output.TABLE,
    context: LiveContext = "",
    kubeconfig: LiveKubeconfig = None,
) -> None:
    """Show which of the webhook's templates nothing refers to, and delete them with --yes.

    A template stays while a pod, a claim or a workload of its namespace refers to it, and always
    when somebody else had a hand in it: applied it, edited it, owns it. The webhook does the same
    by itself after seven days; a template that is needed again is made again.
    """
    check_namespaces(namespace, every=all_namespaces)
    if yes and dry_run:
        fail("found --yes and --dry-run, expected one of them", code=USAGE)
    # Only here: the client library takes longer to import than most commands take to run.
    from hami_dra.cli.pruning import prune  # noqa: PLC0415 - see above

    prune(
        Live(context, kubeconfig),
        namespace=namespace,
        older_than=older_than,
        delete=yes,
        output=output,
    )
