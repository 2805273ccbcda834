"""Ask a live cluster what a conversion needs to know; imported by those commands alone."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hami_dra.kube.errors import ApiError, ConfigurationError, UnreachableError
from hami_dra.kube.pages import pages
from hami_dra.kube.session import Session
from hami_dra.migration import Cards, Json, Policy
from hami_dra.migration.inventory import cards_in

CLUSTER_ERRORS: Final = (ApiError, ConfigurationError, UnreachableError)
"""What can go wrong on the way."""

_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"


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
        slices = await _every(session, _SLICES)
    return Found(f"{major}.{minor}", cards_in(slices, policy))


@dataclass(frozen=True, slots=True)
class FoundQuotas:
    """What the cluster says of quotas.

    Attributes:
        quotas: ResourceQuotas.
        claims: ResourceClaims.
        sizes: the size of the largest card of each driver, in MiB.
    """

    quotas: list[Json]
    claims: list[Json]
    sizes: dict[str, int]


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
        quotas = await _every(session, f"/api/v1{within}/resourcequotas")
        claims = await _every(session, f"/apis/resource.k8s.io/v1{within}/resourceclaims")
        slices = await _every(session, _SLICES)
    return FoundQuotas(quotas, claims, cards_in(slices, policy).largest())


async def _every(session: Session, path: str) -> list[Json]:
    """Read a whole collection, page by page."""
    return [item async for items in pages(session, path) for item in items]
