"""One real cluster for the whole run; for each test its own namespace and its own nodes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hami_dra.lab.nodes import remove_node
from hami_dra.lab.scene import Scene, scene
from hami_dra.lab.wait import until
from tests.e2e.world import World

LOGS = Path(__file__).parents[2] / ".pytest_cache" / "cluster-logs"


@pytest.fixture(scope="session")
def shared_scene(request: pytest.FixtureRequest, kube_version: str | None) -> Iterator[Scene]:
    """A control plane with the webhook registered and no node; its logs stay after a failure."""
    with scene({}, version=kube_version) as shown:
        yield shown
        if request.session.testsfailed:
            shown.cluster.collect_logs(LOGS)


@pytest.fixture
def world(shared_scene: Scene) -> Iterator[World]:
    """A namespace and no nodes; both empty again before the next test."""
    api = shared_scene.api
    made = api.create("namespaces", {"metadata": {"generateName": "test-"}})
    shown = World(shared_scene, made["metadata"]["name"])
    until(
        lambda: api.find("serviceaccounts", "default", namespace=shown.namespace),
        what="pods can be created",
    )
    yield shown
    # First by hand: the namespace controller takes seconds before it begins.
    for resource in ("deployments", "replicasets", "jobs", "pods"):
        api.delete_all(resource, shown.namespace)
    api.delete("namespaces", shown.namespace, wait=False)
    shown.await_nothing("pods")
    shown.await_nothing("resourceclaims")
    for name in shown.nodes:
        remove_node(api, name)
