"""The webhook's view of its cluster: what it watches and what of that must be known first."""

import asyncio
import socket
from collections.abc import Callable, Mapping

from hami_dra.kube.cards import ClusterCards
from hami_dra.kube.limits import ClusterLimits
from hami_dra.kube.owner_events import OwnerEvents
from hami_dra.kube.quotas import OVERDUE_S, ClusterQuotas
from hami_dra.kube.session import Session
from hami_dra.kube.templates import ClusterTemplates
from hami_dra.kube.version import ServerVersion
from hami_dra.migration import CardKind, Cards, NamespaceLimits, Policy
from hami_dra.migration.registration import SYSTEM_NAMESPACE
from hami_dra.quota import Sizes
from webhook.quota import HeldQuotas


class Cluster:
    """Templates, card sizes, limit ranges, quotas and version of one cluster.

    Args:
        session: the API server.
        policy: what a migration means.
        home: the webhook's own namespace.
        quota_overdue_s: see `ClusterQuotas`.

    Attributes:
        templates: the cluster's templates.
        events: what migrations noticed, told to the pods' owners.
        quotas: what pods and claims must fit into.
    """

    def __init__(
        self,
        session: Session,
        policy: Policy,
        *,
        home: str = SYSTEM_NAMESPACE,
        quota_overdue_s: float = OVERDUE_S,
    ) -> None:
        self.templates = ClusterTemplates(session)
        # The name of a pod is its host name.
        self.events = OwnerEvents(session, socket.gethostname())
        self._quotas = ClusterQuotas(
            session, policy, sizes=self.sizes, home=home, overdue_s=quota_overdue_s
        )
        self.quotas = HeldQuotas(self._quotas, policy)
        attributes = {family.driver: family.type_attribute for family in policy.families}
        self._cards = [ClusterCards(session, *each) for each in attributes.items()]
        self._merged: tuple[list[Cards], Cards] = ([], Cards())
        self._limits = ClusterLimits(session, policy.managed_names)
        self._version = ServerVersion(session)
        self._policy = policy

    @property
    def checks(self) -> Mapping[str, Callable[[], bool]]:
        """Return what must hold before a review can be answered rightly."""
        return {
            "template cache": lambda: self.templates.is_synced,
            "card sizes": lambda: all(cards.is_synced for cards in self._cards),
            "limit ranges": lambda: self._limits.is_synced,
            "quotas": lambda: self._quotas.is_synced,
            "API server version": lambda: self._version.current is not None,
        }

    def policy(self) -> Policy:
        """Return the policy for the version that the API server has now."""
        if (found := self._version.current) is not None:
            version = f"{found[0]}.{found[1]}"
            if version != self._policy.kubernetes:
                self._policy = self._policy.model_copy(update={"kubernetes": version})
        return self._policy

    def cards(self) -> Cards:
        """Return the cards that the cluster shows now; the same object while nothing changes."""
        found = [cards.current() for cards in self._cards]
        if found != self._merged[0]:
            kinds = frozenset[CardKind]().union(*(each.kinds for each in found))
            self._merged = found, Cards(kinds=kinds)
        return self._merged[1]

    def sizes(self) -> Sizes:
        """Return the size of the largest card of each driver, in MiB."""
        return self.cards().largest()

    def limits(self, namespace: str) -> NamespaceLimits:
        """Return what the LimitRanges of a namespace insist on now."""
        return self._limits.current(namespace)

    async def run(self) -> None:
        """Keep all of it current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for follow in (
                self.templates.run,
                self.events.run,
                self._limits.run,
                self._quotas.run,
                self._version.run,
                *(cards.run for cards in self._cards),
            ):
                tasks.create_task(follow())
