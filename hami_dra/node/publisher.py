"""Keep the node's ResourceSlice in the API server as it should be, whoever changes it.

The kubelet deletes the slices of its node whenever it starts, so writing one once is not enough:
this is a loop around a watch (ruling 38). What is as it should be costs no call at all.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from hami_dra.kube import slices
from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import WatchCache
from hami_dra.kube.errors import ApiError, NotFoundError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.kube.slices import DroppedFieldsError
from hami_dra.migration import Json
from hami_dra.node.coexistence import device_plugin
from hami_dra.node.metrics import Metrics
from hami_dra.node.troubles import Trouble, Troubles

RESYNC_S: Final = 600.0
"""Seconds after which what was refused is tried again, and the node looked at: a device plugin that
came shows in the node's status alone, which nobody watches."""

_CALM_S: Final = 60.0
_RECHECK_S: Final = 30.0  # while a device plugin is there
_FORBIDDEN: Final = 403
_INVALID: Final = frozenset({400, 422})

_log = logging.getLogger(__name__)

Wanted = Callable[[str], Json]
"""Build the slice for a node with this UID."""


class Publisher:
    """Publishes one slice and repairs it.

    Args:
        session: the API server.
        node: this node's name.
        driver: our driver's name.
        wanted: builds the slice from the node's UID.
        troubles: told what needs a person.
        metrics: counts writes.
        backoff: delays after failures.
        resync_s: see `RESYNC_S`.
    """

    def __init__(
        self,
        session: Session,
        *,
        node: str,
        driver: str,
        wanted: Wanted,
        troubles: Troubles,
        metrics: Metrics,
        backoff: Backoff | None = None,
        resync_s: float = RESYNC_S,
    ) -> None:
        self._session = session
        self._node = node
        self._wanted = wanted
        self._troubles = troubles
        self._metrics = metrics
        self._backoff = backoff or Backoff()
        # Between writes that follow each other closely. The first ones are hardly delayed: a
        # kubelet that starts twice is no fight.
        self._pause = Backoff(initial_s=0.05, limit_s=5.0)
        self._resync_s = resync_s
        self._wake = asyncio.Event()
        self._published = asyncio.Event()
        self._node_uid = ""
        self._is_node_due = True
        self._given_up: tuple[str, Json, int] | None = None
        self._last_write = float("-inf")
        self._refusal: ApiError | None = None  # of the list and the watch
        self._cache: WatchCache[Json] = WatchCache(
            session,
            slices.PATH,
            query={"fieldSelector": f"spec.nodeName={node},spec.driver={driver}"},
            project=lambda item: item,
            changed=self._hear,
            failed=self._lose,
        )

    @property
    def is_published(self) -> bool:
        """Tell whether the API server has the slice as it should be."""
        return self._published.is_set()

    async def published(self) -> None:
        """Wait until the API server has the slice as it should be."""
        await self._published.wait()

    def refresh(self) -> None:
        """Look again soon: what should be published may have changed."""
        self._wake.set()

    def _hear(self) -> None:
        self._refusal = None
        self._wake.set()

    def _lose(self, error: Exception) -> None:
        """Take in why the slices cannot be followed; what passes by itself is the cache's."""
        if isinstance(error, ApiError) and error.status == _FORBIDDEN:
            self._refusal = error
            self._wake.set()

    async def run(self) -> None:
        """Publish and repair until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cache.run())
            while True:
                wait_s = await self._attempt()
                try:
                    # Not wait_for: up to Python 3.11 it loses a cancellation that meets a wake.
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    self._given_up = None
                    self._is_node_due = True

    async def _attempt(self) -> float:
        """Have the slice right once; return after how many seconds to look again."""
        self._wake.clear()
        if self._refusal is not None:
            return await self._refused(self._refusal)
        if not self._cache.is_synced:
            return self._resync_s
        try:
            await self._reconcile()
        except DroppedFieldsError as error:
            kind = Trouble.DROPPED_TAINTS if error.is_shareable else Trouble.DROPPED_FIELDS
            await self._troubles.begin(kind, str(error))
        except UnreachableError as error:
            _log.warning("slice not published, trying again: %s", error)
            return self._backoff.next_s()
        except ApiError as error:
            return await self._refused(error)
        return _RECHECK_S if self._is_in_conflict else self._resync_s

    async def _reconcile(self) -> None:
        wanted = self._wanted(self._node_uid)
        name: str = wanted["metadata"]["name"]
        found = self._cache.get("", name)
        if not self._is_right(found, wanted) and not self._is_given_up(found, wanted):
            self._published.clear()
            self._is_node_due = True
        if self._is_node_due:
            if not await self._may_publish():
                await self._withdraw(found)
                await self._remove_foreign(name)
                return
            wanted = self._wanted(self._node_uid)
        if found is not None and self._is_right(found, wanted):
            self._note(found)
        elif not self._is_given_up(found, wanted):
            await self._write(wanted)
        await self._remove_foreign(name)

    @staticmethod
    def _is_right(found: Json | None, wanted: Json) -> bool:
        return found is not None and slices.is_same(found, wanted)

    async def _may_publish(self) -> bool:
        """Look at the node: whose UID it is, and whether nobody else gives its cards away."""
        node = await self._session.get(f"/api/v1/nodes/{self._node}")
        if (conflict := device_plugin(node)) is not None:
            await self._troubles.begin(Trouble.DEVICE_PLUGIN, conflict)
            return False
        self._troubles.end(Trouble.DEVICE_PLUGIN, Trouble.NO_NODE)
        self._node_uid = node["metadata"]["uid"]
        self._is_node_due = False
        return True

    async def _withdraw(self, found: Json | None) -> None:
        """Offer no cards that somebody else gives away too; who has some keeps them."""
        self._published.clear()
        self._is_node_due = True
        self._metrics.published.set(0)
        if found is not None:
            await slices.remove(self._session, found)
            self._metrics.writes.labels("delete").inc()

    async def _write(self, wanted: Json) -> None:
        """Write the slice."""
        self._published.clear()
        await self._be_calm()
        try:
            stored = await slices.publish(self._session, wanted)
        except DroppedFieldsError as error:
            # What was stored is all that this server can store; do not fight it.
            path = f"{slices.PATH}/{wanted['metadata']['name']}"
            stored = await self._session.get(path)
            self._given_up = (
                stored["metadata"]["resourceVersion"],
                wanted,
                self._cache.lists,
            )
            self._cache.note(stored)
            if error.is_shareable:
                self._note(stored)
            raise
        self._metrics.writes.labels("write").inc()
        self._cache.note(stored)
        self._note(stored)

    async def _be_calm(self) -> None:
        """Slow down when writes follow each other, as when somebody undoes each of them."""
        clock = asyncio.get_running_loop().time
        if clock() - self._last_write > _CALM_S:
            self._pause.reset()
        else:
            await self._pause.wait()
        self._last_write = clock()

    async def _remove_foreign(self, name: str) -> None:
        """Remove slices of our driver and node that are not ours, such as a former release's."""
        foreign = [each for each in self._cache.values() if each["metadata"]["name"] != name]
        if not foreign:
            self._troubles.end(Trouble.FOREIGN_SLICE)
            return
        names = ", ".join(sorted(each["metadata"]["name"] for each in foreign))
        await self._troubles.begin(
            Trouble.FOREIGN_SLICE,
            f"found ResourceSlices of this driver on this node that are not ours: {names}; they are"
            " removed; if they come back, another DRA driver of this name runs on the node",
        )
        for each in foreign:
            await slices.remove(self._session, each)
            self._metrics.writes.labels("delete").inc()

    def _note(self, stored: Json) -> None:
        if not self.is_published:
            _log.info("slice published", extra={"fields": {"slice": stored["metadata"]["name"]}})
        self._backoff.reset()
        self._metrics.published.set(len(stored["spec"].get("devices") or ()))
        self._troubles.end(
            *(Trouble.DROPPED_FIELDS, Trouble.DROPPED_TAINTS, Trouble.SLICE_REFUSED),
            *(Trouble.FORBIDDEN, Trouble.NO_NODE),
        )
        self._published.set()

    @property
    def _is_in_conflict(self) -> bool:
        return Trouble.DEVICE_PLUGIN in self._troubles.current()

    def _is_given_up(self, found: Json | None, wanted: Json) -> bool:
        """Tell whether this server has already shown what it makes of the wanted slice.

        One that was away may have come back with other feature gates.
        """
        if self._given_up is None or found is None:
            return False
        now = (found["metadata"]["resourceVersion"], wanted, self._cache.lists)
        return bool(self._given_up == now)

    async def _refused(self, error: ApiError) -> float:
        """Tell people why, and return when to try again."""
        if isinstance(error, NotFoundError):
            text = f"the node {self._node} does not exist; is the agent's node name right? {error}"
            await self._troubles.begin(Trouble.NO_NODE, text)
        elif error.status == _FORBIDDEN:
            text = f"the agent's ServiceAccount may not do what it must: {error}"
            await self._troubles.begin(Trouble.FORBIDDEN, text)
        elif error.status in _INVALID:
            text = f"the API server refuses the ResourceSlice: {error}"
            await self._troubles.begin(Trouble.SLICE_REFUSED, text)
            return self._resync_s
        else:
            _log.warning("slice not published, trying again: %s", error)
        return max(self._backoff.next_s(), error.retry_after_s)
