"""`hami-dra quota`: how namespaces stand with the quotas that the webhook holds them to."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from hami_dra.cli.exits import UNREADABLE, USAGE, fail
from hami_dra.cli.live import LiveContext, LiveKubeconfig
from hami_dra.cli.options import PolicyFile
from hami_dra.cli.table import table
from hami_dra.cli.target import read_policy
from hami_dra.migration import Json
from hami_dra.quota import Known, Limit, Quota, Sizes
from hami_dra.quota.claim import holdings

EPILOG = (
    "Examples: hami-dra quota -n team-a; hami-dra quota -A -o json. Exit codes: 0 done, 1 cluster"
    " unreachable or a read refused, 2 usage."
)

_COLUMNS = ("NAMESPACE", "QUOTA", "KEY", "USED", "HARD", "PERCENT", "PODS")
_WHOLE = 100
_SHOWN_PODS = 5


class Output(StrEnum):
    """How the figures are printed."""

    TABLE = "table"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who takes how much of a key: a pod, or a claim that no pod holds."""

    kind: str
    name: str
    amount: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """How a namespace stands with one key of a quota."""

    quota: Quota
    limit: Limit
    used: int | None
    holders: tuple[Holder, ...]

    @property
    def percent(self) -> float | None:
        """How much of it is used; None where that cannot be told."""
        if self.used is None or not self.limit.hard:
            return None
        return round(self.used * _WHOLE / self.limit.hard, 1)

    def as_json(self) -> Json:
        """Return the row for programs."""
        return {
            "namespace": self.quota.namespace,
            "quota": self.quota.name,
            "key": self.limit.key,
            "unit": self.limit.meaning.unit,
            "used": self.used,
            "hard": self.limit.hard,
            "percent": self.percent,
            "pods": [{"name": h.name, "amount": h.amount} for h in self._of("pod")],
            "claims": [{"name": h.name, "amount": h.amount} for h in self._of("claim")],
        }

    def as_texts(self) -> tuple[str, ...]:
        """Return the row for people."""
        percent, unit = self.percent, self.limit.meaning.unit
        named = [f"{h.name} ({_text(h.amount)})" for h in self._of("pod")]
        named += [f"claim {h.name} ({_text(h.amount)})" for h in self._of("claim")]
        left = len(named) - _SHOWN_PODS
        shown = [*named[:_SHOWN_PODS], f"and {left} more"] if left > 0 else named
        return (
            self.quota.namespace,
            self.quota.name,
            self.limit.key,
            f"{_text(self.used)} {unit}",
            f"{self.limit.hard} {unit}",
            "-" if percent is None else f"{percent:g} %",
            ", ".join(shown) or "-",
        )

    def _of(self, kind: str) -> list[Holder]:
        return [holder for holder in self.holders if holder.kind == kind]


def quota_command(
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="The namespace to show.")
    ] = "",
    every: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Show every namespace with a quota.")
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print.")] = Output.TABLE,
    policy: PolicyFile = None,
    context: LiveContext = "",
    kubeconfig: LiveKubeconfig = None,
) -> None:
    """Show what the claims of namespaces take of their legacy quotas, and by which pods.

    kubectl shows nothing of it: the API server counts resources that converted pods no longer
    carry. Cards by number, memory in MiB, compute in percent of a card, each summed over cards.
    """
    if bool(namespace) == every:
        fail("expected either --namespace NS or --all-namespaces", code=USAGE)
    meaning = read_policy(policy)
    # Only here: the client library takes longer to import than all else takes to run.
    from hami_dra.cli import cluster  # noqa: PLC0415 - see above

    try:
        found = cluster.ask_quotas(
            meaning, namespace=namespace, context=context or None, kubeconfig=kubeconfig
        )
    except cluster.CLUSTER_ERRORS as error:
        fail(f"cluster: {error}", code=UNREADABLE)
    for name, unknown in found.unknown.items():
        typer.echo(f"hami-dra: claim {name} is not counted: {unknown}", err=True)
    if found.unread:
        typer.echo(
            "hami-dra: could not read the sizes of cards, so a claim for a whole one is unknown"
            f" until it is allocated: {found.unread}",
            err=True,
        )
    rows = _rows(found.quotas, found.claims, found.sizes)
    if output is Output.JSON:
        typer.echo(json.dumps([row.as_json() for row in rows], indent=2))
    elif rows:
        typer.echo(table([_COLUMNS, *(row.as_texts() for row in rows)]), nl=False)
    else:
        where = "any namespace" if every else f"namespace {namespace}"
        typer.echo(f"no quota of {where} speaks of resources that are converted", err=True)
    for notice in (notice for one in found.quotas for notice in one.notices):
        typer.echo(str(notice), err=True)


def _rows(quotas: Iterable[Quota], claims: dict[str, list[Known]], sizes: Sizes) -> list[Row]:
    return [
        _row(one, limit, claims.get(one.namespace, []), sizes)
        for one in sorted(quotas, key=lambda one: (one.namespace, one.name))
        for limit in sorted(one.limits, key=lambda limit: limit.key)
    ]


def _row(quota: Quota, limit: Limit, claims: Sequence[Known], sizes: Sizes) -> Row:
    resource = limit.meaning.resource
    holders = [
        Holder("pod" if one.holders else "claim", ", ".join(one.holders) or one.name, amount)
        for one in claims
        if (amount := one.claimed.amounts(sizes).get(resource, 0)) != 0
    ]
    used = holdings(claims, sizes).get(resource, 0)
    return Row(quota, limit, used, tuple(sorted(holders, key=_by_amount)))


def _by_amount(holder: Holder) -> tuple[float, str]:
    return (float("-inf") if holder.amount is None else -holder.amount), holder.name


def _text(amount: int | None) -> str:
    return "unknown" if amount is None else str(amount)
