"""A certificate of our own making, under the authority that all replicas share in a Secret.

The key of the leaf stays in this process. While the API server is away, leaves are renewed under
the authority that was last seen, which stays trusted until it ends.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from certs.authority import CertificateError
from certs.bundle import Authority, Lifetimes
from certs.leaf import Leaf, Names, issue_leaf, leaf_fault
from certs.secret import OvertakenError, Place, SecretKeeper
from hami_dra.kube.cache import WatchCache
from hami_dra.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from webhook.certificate import Certificate, UnusableCertificateError

# Changes come in bursts, and a quarrel with another writer must stay cheap.
_LEAST_PAUSE_S: Final = 0.2

_TROUBLE: Final = (ApiError, UnreachableError, OvertakenError)

_log = logging.getLogger(__name__)


class CertificateSecret:
    """Keeps the Secret, the configurations and the served certificate right.

    Args:
        session: the API server.
        certificate: filled and kept current.
        place: where the Secret and the configurations are.
        names: what clients dial.
        lifetimes: of the authority and the leaf.
        clock: tells the present.
    """

    def __init__(
        self,
        session: Session,
        certificate: Certificate,
        *,
        place: Place,
        names: Names,
        lifetimes: Lifetimes,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._certificate = certificate
        self._keeper = SecretKeeper(_SessionApi(session), place, lifetimes)
        self._names = names
        self._lifetimes = lifetimes
        self._clock = clock
        self._leaf: Leaf | None = None
        self._news = asyncio.Event()
        self._watches = [
            self._watch(session, path, name)
            for path, name in {place.secrets: place.secret, **place.configurations}.items()
        ]

    async def run(self) -> None:
        """Keep all of it right until cancelled: after each change, and now and then anyway."""
        async with asyncio.TaskGroup() as tasks:
            for watch in self._watches:
                tasks.create_task(watch.run())
            while True:
                self._news.clear()
                await self.refresh()
                await asyncio.sleep(_LEAST_PAUSE_S)
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        self._news.wait(), timeout=self._lifetimes.pause.total_seconds()
                    )

    async def refresh(self) -> None:
        """Look at everything once, and serve with a new leaf if one is due."""
        now = self._clock()
        try:
            ensured = await self._keeper.ensure(now)
        except _TROUBLE as error:
            self._report(f"could not keep the authority's Secret: {error}")
        else:
            if ensured.fault is None:
                self._certificate.recovered()
            else:
                self._report(f"the authority's Secret was written anew: {ensured.fault}")
        if (authority := self._keeper.known) is not None:
            self._renew_leaf(authority, now)

    def _renew_leaf(self, authority: Authority, now: datetime) -> None:
        reason = leaf_fault(self._leaf, authority, now=now)
        if reason is None:
            return
        try:
            leaf = issue_leaf(authority, self._names, lifetimes=self._lifetimes, now=now)
            self._certificate.use(leaf.pair, now=now)
        except (CertificateError, UnusableCertificateError) as error:
            self._report(f"could not issue a certificate: {error}")
            return
        self._leaf = leaf
        _log.info("serving a new certificate until %s: %s", self._certificate.not_after, reason)

    def _report(self, trouble: str) -> None:
        """Tell each trouble once, however often it is met."""
        if trouble != self._certificate.trouble:
            self._certificate.failed(trouble)
            _log.warning("the certificate before stays: %s", trouble)

    def _watch(self, session: Session, path: str, name: str) -> WatchCache[None]:
        """Wake us when a single object changes; nothing of it is kept."""
        return WatchCache(
            session,
            path,
            query={"fieldSelector": f"metadata.name={name}"},
            project=lambda _item: None,
            changed=self._news.set,
        )


class _SessionApi:
    """`certs.secret.Api` on a session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def read(self, path: str) -> Json | None:
        """Return an object, None where there is none."""
        try:
            return await self._session.get(path)
        except NotFoundError:
            return None

    async def create(self, collection: str, item: Json) -> bool:
        """Create an object; False where somebody was faster."""
        try:
            await self._session.create(collection, item)
        except ConflictError:
            return False
        return True

    async def replace(self, path: str, item: Json) -> bool:
        """Replace an object; False where it has changed or gone since it was read."""
        try:
            await self._session.replace(path, item)
        except (ConflictError, NotFoundError):
            return False
        return True
