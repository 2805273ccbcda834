"""Ask a live cluster what a conversion needs to know; imported by those commands alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hami_dra.kube.errors import ApiError, ConfigurationError, UnreachableError
from hami_dra.kube.pages import pages
from hami_dra.kube.session import Session
from hami_dra.migration import Cards, Json, Policy, RejectedPod
from hami_dra.migration.inventory import CardReader
from hami_dra.quota import Known, Quota, read_claim, read_quota

CLUSTER_ERRORS: Final = (ApiError, ConfigurationError, UnreachableError)
"""What can go wrong on the way."""

_DRA: Final = "/apis/resource.k8s.io/v1"
_SLICES: Final = f"{_DRA}/resourceslices"


@dataclass(frozen=True, slots=True)
class Found:
    """What the cluster says.

    Attributes:
        version: `major.minor` of its API server.
        cards: its shareable cards.
    """

    version: str
    cards: Cards


def ask(policy: Policy, *, context: str | None, kubeconfig: Path | None) -> Found:
    """Read version and cards of a cluster; nothing is written.

    Raises:
        ConfigurationError: if no cluster is described.
        UnreachableError: if it does not answer.
        ApiError: if it refuses.
    """
    return asyncio.run(_ask(policy, context, kubeconfig))


async def _ask(policy: Policy, context: str | None, kubeconfig: Path | None) -> Found:
    async with await Session.connect(kubeconfig, context) as session:
        major, minor = await session.version()
        cards = await _cards(session, policy)
    return Found(f"{major}.{minor}", cards)


@dataclass(slots=True)
class FoundQuotas:
    """What the cluster says of quotas.

    Attributes:
        quotas: those that speak of resources that are converted.
        claims: what is known of the claims of each namespace with such a quota.
        unknown: claims of an unknown form, with what is wrong with each.
        sizes: the size of the largest card of each driver, in MiB.
        unread: why no sizes could be read; empty where they could.
    """

    quotas: list[Quota] = field(default_factory=list)
    claims: dict[str, list[Known]] = field(default_factory=dict)
    unknown: dict[str, RejectedPod] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    unread: str = ""


def ask_quotas(
    policy: Policy, *, namespace: str, context: str | None, kubeconfig: Path | None
) -> FoundQuotas:
    """Read quotas, claims and cards of a namespace, or of all; nothing is written.

    Raises:
        ConfigurationError: if no cluster is described.
        UnreachableError: if it does not answer.
        ApiError: if it refuses.
    """
    return asyncio.run(_ask_quotas(policy, namespace, context, kubeconfig))


async def _ask_quotas(
    policy: Policy, namespace: str, context: str | None, kubeconfig: Path | None
) -> FoundQuotas:
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    async with await Session.connect(kubeconfig, context) as session:
        read = [
            read_quota(item, policy)
            async for item in _each(session, f"/api/v1{within}/resourcequotas")
        ]
        found = FoundQuotas([quota for quota in read if quota is not None])
        limited = {quota.namespace for quota in found.quotas}
        # A cluster has many claims, of other drivers too, so nothing else of them is kept.
        async for item in _each(session, f"{_DRA}{within}/resourceclaims"):
            if item["metadata"]["namespace"] in limited:
                _take_in(found, item, policy)
        try:
            found.sizes = (await _cards(session, policy)).largest()
        except ApiError as error:  # whose rights end at their namespace, who must see its quotas
            found.unread = str(error)
    return found


def _take_in(found: FoundQuotas, item: Json, policy: Policy) -> None:
    namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
    try:
        found.claims.setdefault(namespace, []).append(read_claim(item, policy))
    except RejectedPod as wrong:
        found.unknown[f"{namespace}/{name}"] = wrong


async def _cards(session: Session, policy: Policy) -> Cards:
    """Read the cards; a large cluster has thousands of slices, so none is kept."""
    found = CardReader(policy)
    async for item in _each(session, _SLICES):
        found.take(item)
    return found.cards


async def _each(session: Session, path: str) -> AsyncIterator[Json]:
    """Read a whole collection, a page in memory at a time."""
    async with aclosing(pages(session, path)) as listing:
        async for items in listing:
            for item in items:
                yield item
