"""Know a collection of objects without asking: list once, then follow every change.

While the API server is away the last known state stays; readers never wait for it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.errors import ApiError, GoneError, UnreachableError
from hami_dra.kube.session import Query, Session
from hami_dra.migration.json import Json

Value = TypeVar("Value")

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

_PAGE: Final = "500"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Written(Generic[Value]):
    """An object that this process wrote and the watch has not reached yet."""

    version: int
    value: Value


class WatchCache(Generic[Value]):
    """One collection, kept current by list and watch.

    Written by: the task in `run` and by `note`, both on the event loop, so readers need no lock.

    Args:
        session: the API server.
        path: the collection, such as `/apis/resource.k8s.io/v1/resourceslices`.
        query: selectors, as query parameters.
        project: keeps of each object what its readers need.
        changed: called after the contents changed.
        failed: called with why the collection could not be followed, before that is tried again.
        backoff: how long to wait after each failure.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        *,
        project: Callable[[Json], Value],
        query: Query | None = None,
        changed: Callable[[], None] = lambda: None,
        failed: Callable[[Exception], None] = lambda _: None,
        backoff: Backoff | None = None,
    ) -> None:
        self._session = session
        self._path = path
        self._query = dict(query or {})
        self._project = project
        self._changed = changed
        self._failed = failed
        self._backoff = backoff or Backoff()
        self._synced = asyncio.Event()
        self._values: dict[Key, Value] = {}
        self._within: dict[str, dict[str, Value]] = {}
        self._written: dict[Key, _Written[Value]] = {}
        self._version = ""
        self._lists = 0

    @property
    def lists(self) -> int:
        """Tell how often the collection was read as a whole: once more after each lost line."""
        return self._lists

    @property
    def is_synced(self) -> bool:
        """Tell whether the collection was read at least once."""
        return self._synced.is_set()

    async def synced(self) -> None:
        """Wait until the collection was read once."""
        await self._synced.wait()

    def get(self, namespace: str, name: str) -> Value | None:
        """Return what is known of an object, or None."""
        key = (namespace, name)
        if (written := self._written.get(key)) is not None:
            return written.value
        return self._values.get(key)

    def values(self) -> Collection[Value]:
        """Return what is known of every object that the watch has reached."""
        return self._values.values()

    def within(self, namespace: str) -> Collection[Value]:
        """Return what is known of the objects of one namespace that the watch has reached."""
        return self._within.get(namespace, {}).values()

    @property
    def version(self) -> int:
        """Tell how far the watch is: everything up to this resource version is known."""
        return _number(self._version)

    def note(self, written: Json) -> None:
        """Take in an object that this process wrote, until the watch has reached it.

        What the watch has already passed is ignored: it may have been deleted since.
        """
        version = _number(written["metadata"].get("resourceVersion", ""))
        if version > _number(self._version):
            self._written[key_of(written)] = _Written(version, self._project(written))
            self._changed()

    async def run(self) -> None:
        """Follow the collection until cancelled; failures are logged and tried again."""
        while True:
            try:
                await self._list()
                await self._follow()
            except GoneError as error:
                _log.info("watch of %s is too old, listing again: %s", self._path, error)
            except (ApiError, UnreachableError) as error:
                _log.warning("lost track of %s, trying again: %s", self._path, error)
                self._failed(error)
            await self._backoff.wait()

    async def _list(self) -> None:
        """Read the whole collection, in pages, and replace what is known."""
        found: dict[Key, Value] = {}
        query = {**self._query, "limit": _PAGE}
        while True:
            page = await self._session.get(self._path, query=query)
            for item in page.get("items") or ():
                found[key_of(item)] = self._project(item)
            metadata = page["metadata"]
            if not (token := metadata.get("continue")):
                break
            query["continue"] = token
        self._values = found
        self._within = {}
        for (namespace, name), value in found.items():
            self._within.setdefault(namespace, {})[name] = value
        self._advance(metadata["resourceVersion"])
        self._lists += 1
        self._synced.set()
        self._changed()

    async def _follow(self) -> None:
        """Watch from the last known version on; an orderly end of the stream needs no new list."""
        clock = asyncio.get_running_loop().time
        while True:
            started = clock()
            stream = self._session.watch(
                self._path, resource_version=self._version, query=self._query
            )
            async with aclosing(stream) as events:
                async for event in events:
                    self._apply(event)
                    self._backoff.reset()
            if clock() - started > self._backoff.limit_s:
                self._backoff.reset()
            await self._backoff.wait()

    def _apply(self, event: Json) -> None:
        item = event["object"]
        match event["type"]:
            case "ADDED" | "MODIFIED":
                namespace, name = key = key_of(item)
                self._values[key] = value = self._project(item)
                self._within.setdefault(namespace, {})[name] = value
            case "DELETED":
                self._drop(key_of(item))
        self._advance(item["metadata"]["resourceVersion"])
        if event["type"] != "BOOKMARK":
            self._changed()

    def _drop(self, key: Key) -> None:
        """Forget an object, and its namespace with its last one."""
        namespace, name = key
        self._values.pop(key, None)
        if names := self._within.get(namespace):
            names.pop(name, None)
            if not names:
                del self._within[namespace]

    def _advance(self, version: str) -> None:
        """Remember how far the watch is; what was written up to there it has now seen itself."""
        self._version = version
        if self._written:
            reached = _number(version)
            self._written = {k: w for k, w in self._written.items() if w.version > reached}


def key_of(item: Json) -> Key:
    """Return where an object lives."""
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _number(version: str) -> int:
    """Order resource versions, which Kubernetes guarantees to be decimal numbers since 1.35.

    Anything else counts as oldest, so that the watch is believed rather than our own writes.
    """
    return int(version) if version.isascii() and version.isdigit() else 0
