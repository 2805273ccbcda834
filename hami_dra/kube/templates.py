"""Make sure that a ResourceClaimTemplate exists before the pod that names it is admitted.

Templates are named by their content (ruling 24), so whoever comes second finds what it needs:
replicas, retries and identical pods meet in one object, and a known one costs no API call.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import Key, WatchCache
from hami_dra.kube.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.migration import Json, Template

_API: Final = "/apis/resource.k8s.io/v1"
_OURS: Final = {"labelSelector": "app.kubernetes.io/managed-by=hami-dra"}
_ATTEMPTS: Final = (
    3  # a template can be deleted between our create and our read; twice is no chance
)


PATIENCE_S: Final = 4.0
"""Seconds for having a template, trying again included; the API server waits 5 s for a review."""

_TRANSIENT: Final = frozenset({429, 500, 502, 503, 504})


class Outcome(StrEnum):
    """What it took to have a template."""

    KNOWN = "known"
    """It was there already; this request called nobody."""
    JOINED = "joined"
    """Another request was creating it, and this one waited for that."""
    CREATED = "created"
    """This request created it."""
    EXISTED = "existed"
    """It was there with the same meaning, which the API server had to tell."""


class Failure(StrEnum):
    """Why a template could not be had."""

    CONFLICT = "conflict"
    """Its name is taken by a template that means something else."""
    ERROR = "error"
    """The API server refused or did not answer."""


class TemplateConflict(Exception):  # noqa: N818 - a verdict on what is there, not our failure
    """The name is taken by a template that means something else.

    Attributes:
        namespace: where it is.
        name: its name.
    """

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(namespace, name)
        self.namespace = namespace
        self.name = name

    def __str__(self) -> str:
        """Render what was found and what to do."""
        return (
            f"ResourceClaimTemplate {self.namespace}/{self.name} exists with another spec than its"
            " name stands for; somebody changed it or made one by hand: delete it"
            f" (kubectl -n {self.namespace} delete resourceclaimtemplate {self.name})"
            " and create the pod again"
        )


class TemplateStore(Protocol):
    """Where templates are kept: a cluster, or memory in standalone mode and tests."""

    def holds(self, namespace: str, template: Template) -> bool:
        """Tell whether the template is known to be in the namespace, without asking anybody.

        Raises:
            TemplateConflict: if its name is taken by a different one.
        """
        ...

    async def ensure(self, namespace: str, template: Template) -> Outcome:
        """Have the template in the namespace.

        Raises:
            TemplateConflict: if its name is taken by a different one.
        """
        ...


@dataclass(slots=True)
class Stored:
    """A template as it is stored.

    Attributes:
        found: the object; `spec` suffices.
        equal: the spec of ours last found to mean the same, so that comparing by value, which costs
            more than all else of a known template, is done once.
    """

    found: Json
    equal: Json | None = None

    def require_same(self, namespace: str, template: Template) -> None:
        """Raise TemplateConflict unless it means what the template means."""
        if self.equal == template.spec:
            return
        if not template.same_as(self.found):
            raise TemplateConflict(namespace, template.name)
        self.equal = template.spec


class MemoryTemplates:
    """Templates of a webhook without a cluster.

    Attributes:
        objects: what was ensured, by namespace and name.
    """

    def __init__(self) -> None:
        self.objects: dict[Key, Stored] = {}

    def holds(self, namespace: str, template: Template) -> bool:
        """Tell whether the template is in memory."""
        stored = self.objects.get((namespace, template.name))
        if stored is not None:
            stored.require_same(namespace, template)
        return stored is not None

    async def ensure(self, namespace: str, template: Template) -> Outcome:
        """Have the template in memory."""
        if self.holds(namespace, template):
            return Outcome.KNOWN
        self.objects[namespace, template.name] = Stored(template.manifest(namespace))
        return Outcome.CREATED


class ClusterTemplates:
    """Templates of a cluster, behind a watch cache of all that carry our label.

    Written by: the event loop only. One creation is in flight per name, shared by all requests
    that wait for it; it is a task of its own, so no request's cancellation fails the others.

    Args:
        session: the API server.
        backoff: how long to wait after each failure of the watch.
        patience_s: how long to try to have a template.

    Attributes:
        failures: how many requests did not get their template, by reason.
    """

    def __init__(
        self,
        session: Session,
        *,
        backoff: Backoff | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.failures: Counter[Failure] = Counter()
        self._session = session
        self._patience_s = patience_s
        self._cache = WatchCache(
            session,
            f"{_API}/resourceclaimtemplates",
            query=_OURS,
            project=_spec_only,
            backoff=backoff,
        )
        self._flights: dict[Key, asyncio.Task[Outcome]] = {}

    @property
    def is_synced(self) -> bool:
        """Tell whether the cluster's templates were read once."""
        return self._cache.is_synced

    async def synced(self) -> None:
        """Wait until the cluster's templates were read once."""
        await self._cache.synced()

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        await self._cache.run()

    def holds(self, namespace: str, template: Template) -> bool:
        """Tell whether the watch cache has the template.

        Raises:
            TemplateConflict: if its name is taken by a different one.
        """
        stored = self._cache.get(namespace, template.name)
        if stored is not None:
            try:
                stored.require_same(namespace, template)
            except TemplateConflict:
                self.failures[Failure.CONFLICT] += 1
                raise
        return stored is not None

    async def ensure(self, namespace: str, template: Template) -> Outcome:
        """Have the template in the cluster.

        Raises:
            TemplateConflict: if its name is taken by a different one.
            ApiError: if the API server refuses; NotFoundError when the namespace is missing.
            UnreachableError: if the API server does not answer in time.
        """
        if self.holds(namespace, template):
            return Outcome.KNOWN
        try:
            return await self._fly(namespace, template)
        except TemplateConflict:
            self.failures[Failure.CONFLICT] += 1
            raise
        except (ApiError, UnreachableError):
            self.failures[Failure.ERROR] += 1
            raise

    async def _fly(self, namespace: str, template: Template) -> Outcome:
        """Create a template, or wait for the request that is creating it."""
        key = (namespace, template.name)
        if (flight := self._flights.get(key)) is not None:
            await asyncio.shield(flight)
            return Outcome.JOINED
        flight = asyncio.create_task(self._create(namespace, template))
        self._flights[key] = flight
        flight.add_done_callback(lambda done: self._land(key, done))
        return await asyncio.shield(flight)

    def _land(self, key: Key, flight: asyncio.Task[Outcome]) -> None:
        del self._flights[key]
        if not flight.cancelled():
            flight.exception()  # taken here, because every request that waited may be gone

    async def _create(self, namespace: str, template: Template) -> Outcome:
        """Have the template, trying again while that makes sense and the caller still waits."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_s
        backoff = Backoff(initial_s=0.1, limit_s=1.0)
        # What the server said before it said nothing tells more than its silence.
        failure: ApiError | UnreachableError = UnreachableError(
            f"ResourceClaimTemplate {namespace}/{template.name}: the API server did not answer"
            f" within {self._patience_s:g} s"
        )
        while True:
            try:
                async with asyncio.timeout_at(end):
                    return await self._create_once(namespace, template)
            except TimeoutError:
                raise failure from None
            except (ApiError, UnreachableError) as error:
                failure = error
                pause_s = _pause_s(error, backoff)
                if pause_s is None or loop.time() + pause_s >= end:
                    raise
            await asyncio.sleep(pause_s)

    async def _create_once(self, namespace: str, template: Template) -> Outcome:
        collection = f"{_API}/namespaces/{namespace}/resourceclaimtemplates"
        manifest = template.manifest(namespace)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._cache.note(await self._session.create(collection, manifest))
            except ConflictError:
                try:
                    found = await self._session.get(f"{collection}/{template.name}")
                except NotFoundError:
                    if attempt == _ATTEMPTS:
                        raise
                    continue
                Stored(found).require_same(namespace, template)
                return Outcome.EXISTED
            return Outcome.CREATED
        raise AssertionError("unreachable")


def _pause_s(error: ApiError | UnreachableError, backoff: Backoff) -> float | None:
    """Return how long to wait before another try, or None where that would change nothing."""
    if isinstance(error, UnreachableError):
        return backoff.next_s()
    if error.status not in _TRANSIENT:
        return None
    return max(backoff.next_s(), error.retry_after_s)


def _spec_only(item: Json) -> Stored:
    """Keep what `Template.same_as` compares; managedFields alone would double the memory."""
    return Stored({"spec": item["spec"]})
