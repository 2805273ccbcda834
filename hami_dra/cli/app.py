"""The command line of `hami-dra`: arguments in, exit codes out; the work is done elsewhere."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import typer

from hami_dra.cli import policy as policy_commands
from hami_dra.cli import preflight, prune, version
from hami_dra.cli.convert import convert
from hami_dra.cli.exits import EPILOG, NOT_ALL, UNREADABLE, fail
from hami_dra.cli.install import INSTALL_EPILOG, UNINSTALL_EPILOG, install, uninstall
from hami_dra.cli.options import (
    Context,
    Inventory,
    Kubeconfig,
    KubeVersion,
    Manifests,
    PolicyFile,
)
from hami_dra.cli.quota import quota
from hami_dra.cli.revert import revert_all
from hami_dra.cli.sources import Document, UnreadableError, read
from hami_dra.cli.stream import Outcome
from hami_dra.cli.target import find_target

_CONVERT_EXAMPLES: Final = (
    "Examples: hami-dra convert -f deployment.yaml | kubectl apply -f -;"
    " hami-dra convert -f deployment.yaml --context production"
)

_REVERT_EXAMPLE: Final = (
    "Example: hami-dra convert -f deployment.yaml | hami-dra revert -f - | diff deployment.yaml -"
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run HAMi's GPU sharing manifests on Kubernetes Dynamic Resource Allocation (DRA).",
    epilog=EPILOG,
)
app.add_typer(policy_commands.app, name="policy")
app.command(short_help="Install the webhook in a cluster.", epilog=INSTALL_EPILOG)(install)
app.command(short_help="Remove hami-dra from a cluster.", epilog=UNINSTALL_EPILOG)(uninstall)


@app.command(
    "convert", short_help="Print manifests as the webhook makes them.", epilog=_CONVERT_EXAMPLES
)
def convert_command(
    files: Manifests,
    *,
    policy: PolicyFile = None,
    inventory: Inventory = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    kube_version: KubeVersion = "",
) -> None:
    """Print manifests as the webhook would make their pods, with the templates they need.

    Comments, order and quotes stay; a document without GPU sharing resources is not touched at all.
    Manifests go to standard output, notices to standard error. Nothing is sent to any cluster.
    """
    target = find_target(
        policy,
        kube_version=kube_version,
        inventory=inventory,
        context=context,
        kubeconfig=kubeconfig,
    )
    outcome = _of(files, lambda documents: convert(documents, target.policy, target.cards))
    _report(outcome, done="converted")


@app.command("revert", short_help="Print converted manifests as they were.", epilog=_REVERT_EXAMPLE)
def revert_command(files: Manifests) -> None:
    """Print converted manifests as they were before, without the templates they needed.

    It reads the annotation that a conversion leaves on each pod. Documents without it are not
    touched at all, apart from templates of ours that nothing refers to any more.
    """
    _report(_of(files, revert_all), done="reverted")


app.command("preflight", short_help="Tell whether a cluster is ready.", epilog=preflight.EPILOG)(
    preflight.preflight_command
)
app.command("prune", short_help="Delete templates that nothing needs.", epilog=prune.EPILOG)(
    prune.prune_command
)
app.command("version", short_help="Print the version.", epilog=version.EPILOG)(
    version.version_command
)
app.command(
    "quota",
    short_help="Show what claims take of legacy quotas.",
    epilog="Example: hami-dra quota -n team-a; hami-dra quota -A -o json",
)(quota)


def _of(files: list[str], deal_with: Callable[[list[Document]], Outcome]) -> Outcome:
    """Read documents and deal with them; end the command if one cannot be read."""
    try:
        return deal_with([document for name in files for document in read(name)])
    except UnreadableError as error:
        fail(str(error), code=UNREADABLE)


def _report(outcome: Outcome, *, done: str) -> None:
    sys.stdout.write(outcome.output)
    for finding in outcome.findings:
        typer.echo(str(finding), err=True)
    if outcome.rejected:
        fail(
            f"{outcome.rejected} of {outcome.changed + outcome.rejected} GPU workloads"
            f" could not be {done}; their documents were passed through unchanged",
            code=NOT_ALL,
        )


def main() -> None:
    """Run the command line, under the name by which kubectl's users call it where they do."""
    is_plugin = Path(sys.argv[0]).name.startswith("kubectl-")
    app(prog_name="kubectl hami-dra" if is_plugin else None)
