"""Options of the commands that work on a live cluster, and how they end when it is not there."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hami_dra.cli.exits import UNREADABLE, USAGE, fail

if TYPE_CHECKING:
    from hami_dra.kube.session import Session

T = TypeVar("T")

LiveContext = Annotated[
    str,
    typer.Option(
        "--context", metavar="NAME", help="Context of the kubeconfig. Default: its current one."
    ),
]

LiveKubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="How to reach the cluster. Default: KUBECONFIG, a pod's service account, the home.",
    ),
]

OneNamespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Look at this namespace only.")
]

EveryNamespace = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Look at all namespaces; the default.")
]


def check_namespaces(namespace: str, *, every: bool) -> None:
    """End the command if its line names one namespace and all of them."""
    if namespace and every:
        fail("found --namespace and --all-namespaces, expected one of them", code=USAGE)


@dataclass(frozen=True, slots=True)
class Live:
    """A cluster that a command line names.

    Attributes:
        context: of the kubeconfig; empty for its current one.
        kubeconfig: the file; None for the usual places.
    """

    context: str
    kubeconfig: Path | None

    def run(self, work: Callable[["Session"], Coroutine[Any, Any, T]]) -> T:
        """Do something with a session; end the command if the cluster refuses or is not there."""
        # Only here: the client library takes longer to import than most commands take to run.
        import asyncio  # noqa: PLC0415 - see above

        from hami_dra.kube.errors import (  # noqa: PLC0415 - see above
            ApiError,
            ConfigurationError,
            UnreachableError,
        )

        try:
            return asyncio.run(self._with_session(work))
        except (ApiError, ConfigurationError, UnreachableError) as error:
            fail(f"cluster: {error}", code=UNREADABLE)

    async def _with_session(self, work: Callable[["Session"], Coroutine[Any, Any, T]]) -> T:
        from hami_dra.kube.session import Session  # noqa: PLC0415 - see run

        async with await Session.connect(self.kubeconfig, self.context or None) as session:
            return await work(session)
