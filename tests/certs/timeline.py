"""Replicas on a timeline of our own: each API call can be held up, and everybody sees things late.

Time advances only between two steps of a replica, so that every interleaving can be played.
"""

import copy
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from certs.bundle import Lifetimes
from certs.leaf import Leaf, issue_leaf, leaf_fault, service_names
from certs.secret import Json, OvertakenError, Place, SecretKeeper

START = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = Place(namespace="system", secret="ca", mutating="hook", validating="hook")
SECRET = f"{PLACE.secrets}/{PLACE.secret}"
MUTATING, VALIDATING = (f"{where}/{name}" for where, name in PLACE.configurations.items())
NAMES = service_names("webhook", "system")


@dataclass
class Server:
    """An API server: objects by path, each with a version."""

    objects: dict[str, Json] = field(default_factory=dict)
    writes: int = 0

    def put(self, path: str, item: Json) -> None:
        """Store an object as anybody may."""
        self.writes += 1
        stored = copy.deepcopy(item)
        stored.setdefault("metadata", {})["resourceVersion"] = str(self.writes)
        self.objects[path] = stored

    async def read(self, path: str) -> Json | None:
        """Read as a replica does."""
        await Turn()
        return copy.deepcopy(self.objects.get(path))

    async def create(self, collection: str, item: Json) -> bool:
        """Create as a replica does."""
        await Turn()
        path = f"{collection}/{item['metadata']['name']}"
        if path in self.objects:
            return False
        self.put(path, item)
        return True

    async def replace(self, path: str, item: Json) -> bool:
        """Replace as a replica does."""
        await Turn()
        found = self.objects.get(path)
        sent = item["metadata"]["resourceVersion"]
        if found is None or found["metadata"]["resourceVersion"] != sent:
            return False
        self.put(path, item)
        return True

    def register(self, *bundles: str) -> None:
        """Register webhooks that trust these."""
        webhooks = [
            {"name": str(i), "clientConfig": {"caBundle": b}} for i, b in enumerate(bundles)
        ]
        self.put(MUTATING, {"webhooks": webhooks})

    def bundle(self) -> str:
        """Return the first registered bundle."""
        return str(self.objects[MUTATING]["webhooks"][0]["clientConfig"].get("caBundle", ""))


class Turn:
    """Awaiting it lets somebody else go first."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class Replica:
    """A replica that takes one step whenever it is told to.

    Attributes:
        leaf: what it serves.
        is_idle: whether it has just finished a look.
    """

    def __init__(self, timeline: "Timeline") -> None:
        self.keeper = SecretKeeper(timeline.server, PLACE, timeline.lifetimes)
        self.leaf: Leaf | None = None
        self.is_idle = True
        self.idle_since = timeline.now
        self._timeline = timeline
        self._life: Generator[Any, Any, None] | None = None

    def step(self) -> None:
        """Go on up to the next call of the API server."""
        self.is_idle = False
        # Made late: a coroutine that never runs is a warning.
        self._life = self._life or self._live().__await__()
        next(self._life)

    def look(self) -> None:
        """Finish a look."""
        self.step()
        while not self.is_idle:
            self.step()

    async def _live(self) -> None:
        timeline = self._timeline
        while True:
            now = timeline.now
            try:
                await self.keeper.ensure(now)
            except OvertakenError:
                timeline.overtaken += 1
            authority = self.keeper.known
            if authority and leaf_fault(self.leaf, authority, now=now):
                leaf = issue_leaf(authority, NAMES, lifetimes=timeline.lifetimes, now=now)
                self.leaf = leaf
            self.is_idle, self.idle_since = True, timeline.now
            await Turn()


class Timeline:
    """Some replicas, one API server, and what API servers that lag behind may still believe.

    Attributes:
        now: the present.
        overtaken: how often a replica gave up a look.
    """

    def __init__(self, lifetimes: Lifetimes, *, replicas: int, chance: Random) -> None:
        self.lifetimes = lifetimes
        self.now = START
        self.server = Server()
        self.replicas = [Replica(self) for _ in range(replicas)]
        self.overtaken = 0
        self._chance = chance
        self._bundles: deque[tuple[datetime, str]] = deque()

    def tick(self, *, lag: timedelta) -> None:
        """Let a second pass, in which each replica does something or nothing."""
        self.now += timedelta(seconds=1)
        turns = [each for each in self.replicas for _ in range(self._chance.randrange(9))]
        self._chance.shuffle(turns)
        for replica in turns:
            replica.step()
            self._remember(lag)
        for replica in self.replicas:
            if self.now - replica.idle_since >= lag:
                replica.look()
                self._remember(lag)

    def restart(self) -> None:
        """Replace a replica by one that remembers nothing; the others carry on."""
        self.replicas[self._chance.randrange(len(self.replicas))] = Replica(self)

    def believed(self) -> set[str]:
        """Return the bundles that some API server may believe in now."""
        return {bundle for _, bundle in self._bundles if bundle}

    def _remember(self, lag: timedelta) -> None:
        bundle = self.server.bundle()
        if not self._bundles or self._bundles[-1][1] != bundle:
            self._bundles.append((self.now, bundle))
        # The one that was replaced longest ago is forgotten once its successor is known everywhere.
        while len(self._bundles) > 1 and self._bundles[1][0] + lag < self.now:
            self._bundles.popleft()
