"""A world in which things break: replicas behind one address, and storms of pods."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.errors import ApiError, ConflictError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.lab.audit import Event, Recording
from hami_dra.lab.controlplane import CONTROLLER_MANAGER, SCHEDULER
from hami_dra.lab.replica import IDENTITY
from hami_dra.lab.replicas import Replicas
from hami_dra.lab.scene import Scene
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.e2e.world import World, pod

TEMPLATES: Final = "resourceclaimtemplates"
_AT_A_TIME: Final = 32
_WORKERS: Final = 8
_REPLICAS: Final = 2


class Service(World):
    """A world whose webhook is several replicas behind one address.

    Attributes:
        replicas: what the registered address leads to.
    """

    def __init__(self, scene: Scene, namespace: str, replicas: Replicas) -> None:
        super().__init__(scene, namespace)
        self.replicas = replicas

    def mend(self) -> None:
        """Leave two fit replicas that serve, whatever a test did to them."""
        dead = [each for each in self.replicas.running if each.process.poll() is not None]
        serving = self.replicas.balancer.endpoints
        idle = [each for each in self.replicas.running if each.port not in serving]
        for replica in {each.port: each for each in (*dead, *idle)}.values():
            self.replicas.forget(replica)
        while len(self.replicas.running) < _REPLICAS:
            self.replicas.add()

    def dry_run(self, manifest: Json) -> Json:
        """Return what a pod would become."""
        query = {"dryRun": "All"}
        return self.scene.api.create("pods", manifest, namespace=self.namespace, query=query)

    def create(self, manifest: Json) -> Json:
        """Create a pod, or raise what the API server says."""
        return self.scene.api.create("pods", manifest, namespace=self.namespace)

    def create_all(self, manifests: Sequence[Json]) -> list[Json | ApiError]:
        """Create pods at the same time and return what became of each."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"

        async def work(session: Session) -> list[Json | ApiError]:
            gate = asyncio.Semaphore(_AT_A_TIME)

            async def one(manifest: Json) -> Json | ApiError:
                async with gate:
                    try:
                        return await session.create(path, manifest)
                    except ApiError as error:
                        return error

            return await asyncio.gather(*map(one, manifests))

        return self.scene.api.run(work)

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Look at what the API server is asked from now on."""
        with self.scene.cluster.audit.recording(self.scene.api) as recorded:
            yield recorded

    @contextmanager
    def nothing_but_admission(self) -> Iterator[None]:
        """Let nobody make claims or place pods meanwhile, which is not what is looked at."""
        with ExitStack() as stack:
            for name in (CONTROLLER_MANAGER, SCHEDULER):
                stack.enter_context(self.scene.cluster.processes[name].paused())
            try:
                yield
            finally:
                self.scene.api.delete_all("pods", self.namespace)
                self.await_nothing("pods")


def asked_by_webhook(recorded: Recording, resource: str = TEMPLATES) -> list[Event]:
    """Return what the webhook asked of a resource."""
    return [event for event in recorded.events(user=IDENTITY) if event.resource == resource]


def is_converted(seen: Json) -> bool:
    """Tell whether a pod got its claim and asks for nothing in legacy words."""
    containers = seen["spec"]["containers"]
    amounts = [
        name
        for container in containers
        for section in container.get("resources", {}).values()
        if isinstance(section, dict)
        for name in section
    ]
    has_claims = all(container["resources"].get("claims") for container in containers)
    return has_claims and not any(name.startswith("nvidia.com/") for name in amounts)


def template_of(seen: Json) -> str:
    """Return the template of a pod's one claim."""
    [entry] = seen["spec"]["resourceClaims"]
    name: str = entry["resourceClaimTemplateName"]
    return name


@dataclass
class Storm:
    """Pods that clients create as fast as they can, each trying again until its pod is there.

    Attributes:
        created: names of pods that are there.
        failures: what the API server said instead, in order.
    """

    created: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def await_more(self, count: int) -> None:
        """Wait until so many more pods are there."""
        goal = len(self.created) + count
        until(lambda: len(self.created) >= goal, what=f"the storm created {count} more")


@contextmanager
def storm(service: Service, shape: Json) -> Iterator[Storm]:
    """Create pods of one shape all the time, from several clients."""
    seen = Storm()
    stop = threading.Event()

    async def client(session: Session, number: int) -> None:
        path = f"/api/v1/namespaces/{service.namespace}/pods"
        count = 0
        while not stop.is_set():
            count += 1
            name = f"storm-{number}-{count}"
            if await _insist(session, path, pod(name, shape), seen, stop):
                seen.created.append(name)

    async def clients() -> None:
        async with await Session.connect(service.scene.cluster.kubeconfig) as session:
            await asyncio.gather(*(client(session, number) for number in range(_WORKERS)))

    thread = threading.Thread(target=lambda: asyncio.run(clients()), name="storm")
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


async def _insist(
    session: Session, path: str, manifest: Json, seen: Storm, stop: threading.Event
) -> bool:
    """Create a pod as a controller does: again until it is there, or the storm is over."""
    backoff = Backoff(initial_s=0.05, limit_s=0.5)
    while True:
        try:
            await session.create(path, manifest)
        except ConflictError:
            return True
        except (ApiError, UnreachableError) as error:
            seen.failures.append(str(error))
        else:
            return True
        if stop.is_set():
            return False
        await backoff.wait()
