"""`hami-dra install` and `hami-dra uninstall`: put hami-dra into a cluster and take it out."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from hami_dra.cli.exits import NOT_ALL, UNREADABLE, USAGE, fail
from hami_dra.cli.options import PolicyFile
from hami_dra.cli.render import manifest
from hami_dra.cli.sources import UnreadableError, read_text
from hami_dra.install.admission import PolicyText, chart_text
from hami_dra.install.manifests import (
    AGENT,
    Certificates,
    Choice,
    everything,
    objects,
    other_choices,
    secrets,
    shipped_policy,
    title,
)
from hami_dra.install.order import Stages, stages
from hami_dra.migration.names import DRIVER
from hami_dra.migration.registration import SYSTEM_NAMESPACE
from hami_dra.policies import PolicyFileError, parse

_CODES: Final = (
    "Exit codes: 0 done, 1 input unreadable or cluster unreachable or refusing, 2 usage, 3 applied,"
    " but not ready in time."
)
EPILOG: Final = (
    "Examples: hami-dra install --image IMAGE; hami-dra install --policy policy.yaml --dry-run |"
    f" kubectl diff -f -. {_CODES}"
)
"""What `install --help` ends with."""

UNINSTALL_EPILOG: Final = f"Examples: hami-dra uninstall --dry-run; hami-dra uninstall. {_CODES}"
"""What `uninstall --help` ends with."""

_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_INSTALLED: Final = """\
hami-dra is installed: new pods that ask for HAMi's resources get claims from now on.
  cards:   kubectl get resourceslices
  agents:  kubectl -n {agents} get pods -o wide     (unless left out)
  use:     port 31995 of each node, for browsers and Prometheus     (unless left out)
  webhook: kubectl -n {namespace} get pods"""

_STAYS: Final = """\
New pods are not converted any more, and templates of converted pods stay where they are:
  kubectl get resourceclaimtemplates -A -l app.kubernetes.io/managed-by=hami-dra"""

Mode = Annotated[
    Certificates,
    typer.Option(
        help="Who issues the webhook's certificate: the replicas themselves, or cert-manager, which"
        " must run already."
    ),
]
Image = Annotated[
    str, typer.Option(metavar="IMAGE", help="Image to run; default: hami-dra:VERSION.")
]
Replicas = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Replicas of the webhook; default: 2."),
]
Namespace = Annotated[
    str,
    typer.Option(metavar="NAME", help=f"Namespace of the webhook; the node agent's is {AGENT}."),
]
ExtendedResource = Annotated[
    bool,
    typer.Option(
        "--extended-resource",
        help="Let the DeviceClass stand for the legacy resource too: pods that come past the"
        " webhook get whole cards.",
    ),
]
NodeAgent = Annotated[
    bool,
    typer.Option(
        help="Run hami-dra-node on every node; not where another DRA driver publishes cards under"
        f" {DRIVER}."
    ),
]
Monitor = Annotated[
    bool,
    typer.Option(
        help="Run hami-dra-monitor on every node: what its cards are used for, at port 31995. Goes"
        " with --no-node-agent."
    ),
]
RuntimeClass = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="RuntimeClass of node agent and monitor: nvidia where NVIDIA's container runtime is"
        " not the default one.",
    ),
]
KeepNodeAgent = Annotated[
    bool,
    typer.Option(
        "--keep-node-agent", help="Leave hami-dra-node on the nodes: pods that run need it to end."
    ),
]
Context = Annotated[
    str, typer.Option(metavar="NAME", help="Context of the kubeconfig; default: its current one.")
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="How to reach the cluster; default: as kubectl does."),
]
Wait = Annotated[
    bool,
    typer.Option(help="Register the webhook only when it is ready, and see that it is trusted."),
]
Timeout = Annotated[
    int,
    typer.Option(
        metavar="SECONDS", min=1, help="How long to wait for one object that gets no further."
    ),
]
ForceConflicts = Annotated[
    bool,
    typer.Option("--force-conflicts", help="Take over fields that kubectl, Helm or a person set."),
]
PrintManifests = Annotated[
    bool, typer.Option("--dry-run", help="Print the manifests; send nothing.")
]
PrintValues = Annotated[
    bool,
    typer.Option("--helm-values", help="Print the chart's values for --policy; send nothing."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
PrintRemoval = Annotated[
    bool, typer.Option("--dry-run", help="List what would be deleted; send nothing.")
]


def install_command(
    *,
    certificates: Mode = Certificates.SELF_SIGNED,
    policy: PolicyFile = None,
    image: Image = "",
    replicas: Replicas = None,
    namespace: Namespace = SYSTEM_NAMESPACE,
    extended_resource: ExtendedResource = False,
    node_agent: NodeAgent = True,
    monitor: Monitor = True,
    runtime_class: RuntimeClass = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    wait: Wait = True,
    timeout: Timeout = 300,
    force_conflicts: ForceConflicts = False,
    dry_run: PrintManifests = False,
    helm_values: PrintValues = False,
) -> None:
    """Install webhook, node agent and monitor in a cluster, or change what is installed.

    First what it needs and the webhook itself; when that is ready, the registration by which the
    API server calls it; then the guard, which refuses pods that were not converted; last agent and
    monitor on every node. Existing pods are never touched. The registration and the guard are made
    from the policy.
    """
    choice = Choice(
        certificates=certificates,
        namespace=_checked(namespace),
        policy=_policy(policy),
        image=image or None,
        replicas=replicas,
        extended_resource=extended_resource,
        node_agent=node_agent,
        monitor=monitor,
        runtime_class=runtime_class or None,
    )
    if helm_values:
        sys.stdout.write(_helm_values(choice.policy or shipped_policy()))
        return
    plan = stages(objects(choice))
    if dry_run:
        sys.stdout.write("---\n".join(manifest(each) for each in plan.forwards()))
        return
    # Only here: the client library takes longer to import than manifests take to print.
    from hami_dra.install import run  # noqa: PLC0415 - see above

    place = run.Place(context or None, kubeconfig, timeout if wait else None)
    obsolete = stages(other_choices(plan.forwards(), namespace)).backwards()
    _reported(lambda: run.install(place, plan, obsolete, force=force_conflicts))
    typer.echo(_INSTALLED.format(namespace=namespace, agents=AGENT))


def uninstall_command(
    *,
    namespace: Namespace = SYSTEM_NAMESPACE,
    keep_node_agent: KeepNodeAgent = False,
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    timeout: Timeout = 300,
    yes: Yes = False,
    dry_run: PrintRemoval = False,
) -> None:
    """Remove hami-dra from a cluster: what refuses pods first, what they wait for next.

    Pods that hold cards must go before the node agent does, or nobody could end them; with
    --keep-node-agent they run on. Templates of converted pods stay, because workloads may refer to
    them. Pods created afterwards are not converted any more.
    """
    plan = stages(everything(_checked(namespace), node_agent=not keep_node_agent))
    if dry_run or not yes:
        typer.echo("\n".join(("To be deleted, in this order:", *_listed(plan, namespace))))
    if dry_run:
        return
    if not yes:
        _ask(context)
    from hami_dra.install import run  # noqa: PLC0415 - see install

    place = run.Place(context or None, kubeconfig, timeout)
    _reported(lambda: run.remove(place, plan, secrets(namespace), namespace))
    typer.echo(_STAYS)


def _reported(act: Callable[[], None]) -> None:
    """Do something to a cluster, and end the command with the reason if it fails."""
    from hami_dra.install import run  # noqa: PLC0415 - see install

    try:
        act()
    except run.NotReadyError as error:
        fail(f"{error}\nWhat would follow it was not done; run the command again.", code=NOT_ALL)
    except run.ERRORS as error:
        fail(f"cluster: {error}", code=UNREADABLE)


def _ask(context: str) -> None:
    """Have a person agree; end the command if nobody does."""
    if not sys.stdin.isatty():
        fail("found nobody to ask, expected a terminal or --yes", code=USAGE)
    where = f"the cluster of context {context}" if context else "the current cluster"
    if not typer.confirm(f"Delete all of it from {where}?"):
        typer.echo("nothing was deleted")
        raise typer.Exit


def _listed(plan: Stages, namespace: str) -> Iterator[str]:
    backwards = plan.backwards()
    last = [each for each in backwards if each["kind"] == "Namespace"]
    others = [each for each in backwards if each not in last]
    yield from (f"  {title(each)}" for each in (*others, *secrets(namespace)))
    yield "  configmap/hami-dra-quota-NAMESPACE, of each with a quota"
    yield from (f"  {title(each)}, if hami-dra made it" for each in last)


def _policy(file: Path | None) -> PolicyText | None:
    """Return a policy with its text as it was written."""
    if file is None:
        return None
    try:
        # As every YAML reader does, so that the digest is that of the text in the cluster.
        text = read_text(str(file)).replace("\r\n", "\n").replace("\r", "\n")
        return PolicyText(text, parse(text, str(file)))
    except UnreadableError as error:
        fail(str(error), code=UNREADABLE)
    except PolicyFileError as error:
        fail(f"this policy cannot be used\n{error}", code=UNREADABLE)


def _helm_values(policy: PolicyText) -> str:
    return manifest({"policy": policy.text, "admission": chart_text(policy, manifest)})


def _checked(namespace: str) -> str:
    if not _NAMESPACE_NAME.fullmatch(namespace):
        fail(
            f"--namespace: found {namespace!r}, expected a name such as {SYSTEM_NAMESPACE}",
            code=USAGE,
        )
    if namespace == AGENT:
        fail(f"--namespace: found {AGENT}, which is the node agent's; choose another", code=USAGE)
    return namespace
