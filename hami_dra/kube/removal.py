"""Delete templates that nothing refers to, and put back what turns out to be needed.

A pod may be admitted between our look and our delete, by a replica that still knows the template.
Nobody can exclude that without a write for each pod, so we look again afterwards: at once, and
later for pods whose admission took its time or whose replica had lost its watch. Such a pod waits
until then and no longer, since the API server retries it when the template appears.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable
from enum import StrEnum
from typing import Any, Final, TypeVar

from hami_dra.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.kube.survey import Judged, collection, users_of
from hami_dra.kube.unused import preconditions, restored
from hami_dra.migration.json import Json

LATER_LOOKS_S: Final = (5.0, 55.0, 240.0)
"""Pauses before the further looks. An admission lasts a minute at most; a replica without a watch
notices it within five."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Effect(StrEnum):
    """What was done to a template."""

    MARKED = "marked"
    """Recorded as unused."""
    UNMARKED = "unmarked"
    """In use again."""
    SWEPT = "swept"
    """Deleted."""
    PUT_BACK = "put_back"
    """Deleted, and created again because something refers to it."""
    OVERTAKEN = "overtaken"
    """Left alone, because somebody changed it after our look."""
    FAILED = "failed"
    """Not dealt with, because the API server refused or did not answer."""


class Remover:
    """Deletes templates of one cluster and remembers them until the last look.

    Attributes:
        effects: what was done so far, by effect.
    """

    def __init__(self, session: Session, *, later_looks_s: Iterable[float] = LATER_LOOKS_S) -> None:
        self.effects: Counter[Effect] = Counter()
        self._session = session
        self._later_looks_s = tuple(later_looks_s)
        self._deleted: dict[str, dict[str, Json]] = {}

    async def remove(self, namespace: str, doomed: Iterable[Judged]) -> dict[str, Effect]:
        """Delete templates of one namespace, look again, and tell what became of each by name.

        Once begun it is not interrupted: between a delete and the look after it, nobody else knows
        that a pod may be waiting.
        """
        return await uninterrupted(self._remove(namespace, list(doomed)))

    async def look_later(self) -> dict[tuple[str, str], Effect]:
        """Make the further looks and return what was put back, by namespace and name."""
        found: dict[tuple[str, str], Effect] = {}
        for pause_s in self._later_looks_s:
            if not any(self._deleted.values()):
                break
            await asyncio.sleep(pause_s)
            for namespace in list(self._deleted):
                back = await uninterrupted(self._look(namespace))
                found |= {(namespace, name): effect for name, effect in back.items()}
        self._deleted.clear()
        return found

    async def _remove(self, namespace: str, doomed: list[Judged]) -> dict[str, Effect]:
        outcomes = {each.name: await self._delete(each) for each in doomed}
        self.effects.update(outcomes.values())
        return outcomes | await self._look(namespace)

    async def _delete(self, doomed: Judged) -> Effect:
        path = f"{collection(doomed.namespace)}/{doomed.name}"
        options = preconditions(doomed.template)
        gone = self._deleted.setdefault(doomed.namespace, {})
        try:
            whole = await self._session.get(path)
            if preconditions(whole) != options:
                return Effect.OVERTAKEN
            gone[doomed.name] = whole  # before the delete: its answer may be lost
            await self._session.delete(path, options=options)
        except (ConflictError, NotFoundError):
            gone.pop(doomed.name, None)
            return Effect.OVERTAKEN
        except (ApiError, UnreachableError):
            return Effect.FAILED
        return Effect.SWEPT

    async def _look(self, namespace: str) -> dict[str, Effect]:
        """Put back what something refers to now; after a failure the next look tries again."""
        gone = self._deleted.get(namespace) or {}
        back: dict[str, Effect] = {}
        try:
            needed = await users_of(self._session, namespace, gone)
            for name in needed:
                if await self._put_back(namespace, gone[name]):
                    back[name] = Effect.PUT_BACK
                del gone[name]
        except (ApiError, UnreachableError) as error:
            _log.warning("could not look again at templates deleted in %s: %s", namespace, error)
            self.effects[Effect.FAILED] += 1
        self.effects.update(back.values())
        return back

    async def _put_back(self, namespace: str, whole: Json) -> bool:
        """Create a template again; False where it is there, deleted in vain or made anew."""
        try:
            await self._session.create(collection(namespace), restored(whole))
        except ConflictError:
            return False
        return True


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Finish a piece of work even if we are cancelled meanwhile; then be cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
