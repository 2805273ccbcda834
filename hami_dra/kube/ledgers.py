"""Keep the ledgers of quotas: one ConfigMap a namespace, beside the webhook and not with its users.

Every write names the version that was read, so a ledger has one order of writes, whoever writes.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import WatchCache
from hami_dra.kube.errors import ConflictError, NotFoundError
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from hami_dra.migration.claim import MANAGED_BY
from hami_dra.quota.ledger import DamagedLedgerError, Ledger

PREFIX: Final = "hami-dra-quota-"
"""Start of a ledger's name; the namespace that it is about follows."""

_LABELS: Final = {**MANAGED_BY, "app.kubernetes.io/component": "quota-ledger"}

SELECTOR: Final = ",".join(f"{key}={value}" for key, value in _LABELS.items())
"""Labels that all ledgers have and nothing else has."""

_KEY: Final = "ledger"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """A ledger as it is stored.

    Attributes:
        ledger: None where somebody damaged it.
        metadata: of its object; a write names its version.
    """

    ledger: Ledger | None
    metadata: Json


class Ledgers:
    """The ledgers of all namespaces with a quota.

    Args:
        session: the API server.
        home: the namespace that holds them.
        overdue_s: after so long a claim that was admitted is created or never will be. Longer than
            the API server's --request-timeout, which bounds a creation.
        changed: called after what is known changed.
        clock: seconds, of this process alone; replicas compare no clocks.
        backoff: how long to wait after each failure.
    """

    def __init__(
        self,
        session: Session,
        home: str,
        *,
        overdue_s: float,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self._session = session
        self._path = f"/api/v1/namespaces/{home}/configmaps"
        self._overdue_s = overdue_s
        self._clock = clock
        self._sighted: dict[str, dict[str, float]] = {}
        self._cache = WatchCache(
            session,
            self._path,
            query={"labelSelector": SELECTOR},
            project=self._take_in,
            changed=changed,
            backoff=backoff,
        )
        self._home = home

    @property
    def is_synced(self) -> bool:
        """Tell whether the ledgers were read once."""
        return self._cache.is_synced

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        await self._cache.run()

    def cached(self, namespace: str) -> Stored | None:
        """Return the last known ledger of a namespace; writing on top of an old one fails."""
        return self._cache.get(self._home, f"{PREFIX}{namespace}")

    def reserved(self) -> dict[str, Ledger]:
        """Return the last known ledger of each namespace."""
        return {
            stored.metadata["name"].removeprefix(PREFIX): stored.ledger
            for stored in self._cache.values()
            if stored.ledger is not None
        }

    def overdue(self, namespace: str) -> set[str]:
        """Return the claims that were reserved for longer than a creation can take."""
        before = self._clock() - self._overdue_s
        seen = self._sighted.get(namespace, {})
        return {uid for uid, since in seen.items() if since < before}

    async def read(self, namespace: str) -> Stored | None:
        """Ask the API server for a ledger."""
        try:
            return self._take_in(await self._session.get(f"{self._path}/{PREFIX}{namespace}"))
        except NotFoundError:
            return None

    async def write(self, namespace: str, before: Stored | None, ledger: Ledger) -> bool:
        """Store a ledger on top of the one that was read; False where somebody was faster.

        Raises:
            ApiError: if the API server refuses.
            UnreachableError: if it does not answer.
        """
        data = {_KEY: ledger.as_text()}
        item: Json = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
        try:
            if before is None:
                item["metadata"] = await self._metadata(namespace)
                written = await self._session.create(self._path, item)
            else:
                item["metadata"] = before.metadata
                name = before.metadata["name"]
                written = await self._session.replace(f"{self._path}/{name}", item)
        except (ConflictError, NotFoundError):
            return False
        self._cache.note(written)
        return True

    async def _metadata(self, namespace: str) -> Json:
        """Describe a new ledger, which goes when its namespace does."""
        found = await self._session.get(f"/api/v1/namespaces/{namespace}")
        owner = {"apiVersion": "v1", "kind": "Namespace", "name": namespace}
        return {
            "name": f"{PREFIX}{namespace}",
            "namespace": self._home,
            "labels": dict(_LABELS),
            "ownerReferences": [{**owner, "uid": found["metadata"]["uid"]}],
        }

    def _take_in(self, item: Json) -> Stored:
        """Read a stored ledger, and remember since when this process knows of each claim in it."""
        metadata = {k: v for k, v in item["metadata"].items() if k != "managedFields"}
        namespace = metadata["name"].removeprefix(PREFIX)
        try:
            ledger = Ledger.from_text((item.get("data") or {}).get(_KEY) or "")
        except DamagedLedgerError as error:
            _log.error("the quota ledger %s is begun anew: %s", metadata["name"], error)
            return Stored(None, metadata)
        before, now = self._sighted.get(namespace, {}), self._clock()
        self._sighted[namespace] = {uid: before.get(uid, now) for uid in ledger.reserved}
        return Stored(ledger, metadata)
