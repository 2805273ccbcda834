"""What manifests are converted for: a policy, and the cards of a cluster."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from hami_dra.cli import inventory as inventories
from hami_dra.cli.exits import UNREADABLE, USAGE, fail
from hami_dra.cli.sources import UnreadableError
from hami_dra.migration import Cards, Policy


@dataclass(frozen=True, slots=True)
class Target:
    """What a conversion is for.

    Attributes:
        policy: what a migration means there.
        cards: what cards there are.
    """

    policy: Policy
    cards: Cards


def read_policy(file: Path | None) -> Policy:
    """Return the policy of a file, the default one without; end the command if it is wrong."""
    if file is None:
        return Policy()
    # Only here: reading YAML with lines takes longer to import than a conversion takes to run.
    from hami_dra.policies import PolicyFileError, load  # noqa: PLC0415 - see above

    try:
        return load(file)
    except PolicyFileError as error:
        fail(f"this policy cannot be used\n{error}", code=UNREADABLE)


def find_target(
    policy_file: Path | None,
    *,
    kube_version: str,
    inventory: str,
    context: str,
    kubeconfig: Path | None,
    is_live: bool = False,
) -> Target:
    """Put together what the command line says; the named version wins over the cluster's.

    Args:
        policy_file: None for the default policy.
        kube_version: empty for none.
        inventory: a file of cards; empty for none.
        context: of the kubeconfig; empty for its current one.
        kubeconfig: None for the usual places.
        is_live: whether the pod comes from the cluster, which is asked even if nothing names it.
    """
    policy = _with_version(read_policy(policy_file), kube_version)
    live = context or kubeconfig
    if inventory and live:
        fail(
            "found --inventory and a cluster (--context, --kubeconfig), expected one of them:"
            " both say which cards there are",
            code=USAGE,
        )
    if live or (is_live and not inventory):
        return _ask(policy, context, kubeconfig, keep_version=bool(kube_version))
    try:
        cards = inventories.read_cards(inventory, policy) if inventory else Cards()
    except UnreadableError as error:
        fail(str(error), code=UNREADABLE)
    return Target(policy, cards)


def _with_version(policy: Policy, version: str) -> Policy:
    if not version:
        return policy
    try:
        Policy(kubernetes=version)
    except ValidationError:
        fail(f"--kube-version: found {version!r}, expected a version such as 1.37", code=USAGE)
    return policy.model_copy(update={"kubernetes": version})


def _ask(policy: Policy, context: str, kubeconfig: Path | None, *, keep_version: bool) -> Target:
    # Only here: the client library takes longer to import than a conversion takes to run.
    from hami_dra.cli import cluster  # noqa: PLC0415 - see above

    try:
        found = cluster.ask(policy, context=context or None, kubeconfig=kubeconfig)
    except cluster.CLUSTER_ERRORS as error:
        fail(f"cluster: {error}", code=UNREADABLE)
    if keep_version:
        return Target(policy, found.cards)
    return Target(policy.model_copy(update={"kubernetes": found.version}), found.cards)
