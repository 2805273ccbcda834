"""One real cluster for the whole run; for each test its own namespace and its own nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hami_dra.lab import replicas
from hami_dra.lab.nodes import remove_node
from hami_dra.lab.replicas import Replicas
from hami_dra.lab.scene import Scene, scene
from hami_dra.lab.wait import until
from tests.e2e.faults import Service
from tests.e2e.idle import Idle, idling
from tests.e2e.world import World

LAST = "test_faults_idle.py"
LOGS = Path(__file__).parents[2] / ".pytest_cache" / "cluster-logs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what only waits behind everything that it can wait beside."""
    items.sort(key=lambda item: item.path.name == LAST)


@pytest.fixture(scope="session")
def shared_scene(request: pytest.FixtureRequest, kube_version: str | None) -> Iterator[Scene]:
    """A control plane with the webhook registered and no node; its logs stay after a failure."""
    with scene({}, version=kube_version) as shown:
        yield shown
        if request.session.testsfailed:
            shown.cluster.collect_logs(LOGS)


@pytest.fixture(scope="session")
def audited_scene(request: pytest.FixtureRequest, kube_version: str | None) -> Iterator[Scene]:
    """A second control plane, for faults, which keeps an audit log."""
    with scene({}, version=kube_version, audited=True) as shown:
        yield shown
        if request.session.testsfailed:
            shown.cluster.collect_logs(LOGS / "faults")


@pytest.fixture(scope="session")
def idle(audited_scene: Scene) -> Iterator[Idle]:
    """A connection to the scene's own webhook, which nobody else uses then."""
    with idling(audited_scene.webhook.port) as waiting:
        yield waiting


@pytest.fixture(scope="session")
def shared_replicas(request: pytest.FixtureRequest, audited_scene: Scene) -> Iterator[Replicas]:
    """Two replicas behind one address, with the shipped rights and a certificate of their own."""
    request.getfixturevalue("idle")
    # Long enough for a slow machine to look at one that has begun to drain.
    options = ("--termination-delay-s", "8")
    with replicas.registered(audited_scene.cluster, audited_scene.api, options=options) as shown:
        yield shown


@pytest.fixture
def world(shared_scene: Scene) -> Iterator[World]:
    """A namespace and no nodes; both empty again before the next test."""
    with _namespace(shared_scene) as name, _emptied(World(shared_scene, name)) as shown:
        yield shown


@pytest.fixture
def service(audited_scene: Scene, shared_replicas: Replicas) -> Iterator[Service]:
    """A world whose webhook is two replicas; two fit ones are left to the next test."""
    with _namespace(audited_scene) as name:
        shown = Service(audited_scene, name, shared_replicas)
        with _emptied(shown):
            yield shown
            shown.mend()


@contextmanager
def _namespace(scene: Scene) -> Iterator[str]:
    api = scene.api
    name: str = api.create("namespaces", {"metadata": {"generateName": "test-"}})["metadata"][
        "name"
    ]
    until(
        lambda: api.find("serviceaccounts", "default", namespace=name),
        what="pods can be created",
    )
    yield name


@contextmanager
def _emptied(shown: World) -> Iterator[World]:
    api = shown.scene.api
    yield shown
    # First by hand: the namespace controller takes seconds before it begins.
    for resource in ("deployments", "replicasets", "jobs", "pods"):
        api.delete_all(resource, shown.namespace)
    api.delete("namespaces", shown.namespace, wait=False)
    shown.await_nothing("pods")
    shown.await_nothing("resourceclaims")
    for name in shown.nodes:
        remove_node(api, name)
