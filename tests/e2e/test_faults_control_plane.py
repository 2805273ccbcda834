"""The control plane goes away and comes back; the webhook finds its way without a restart."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from time import monotonic

import pytest

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.lab.api import Api
from hami_dra.lab.controlplane import API_SERVER, ETCD
from hami_dra.lab.replica import Replica
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.e2e.faults import TEMPLATES, Service, asked_by_webhook, is_converted, template_of
from tests.e2e.world import pod
from tests.webhook.reviews import review_of

pytestmark = pytest.mark.cluster

KNOWN = {"gpu": 1, "gpumem": 3000, "gpucores": 30}
NEW = {"gpu": 1, "gpumem": 3001, "gpucores": 30}
NEWER = {"gpu": 1, "gpumem": 3002, "gpucores": 30}
TROUBLE = (ApiError, UnreachableError, OSError)
PAUSE_S = 10.0


@contextmanager
def same_processes(service: Service) -> Iterator[None]:
    """See that nothing was restarted and all of it is ready at the end."""
    before = [(each.process.pid, each.process.poll()) for each in service.replicas.running]
    yield
    for replica in service.replicas.running:
        until(replica.is_ready, what=f"{replica.process.name} is ready")
    after = [(each.process.pid, each.process.poll()) for each in service.replicas.running]
    assert after == before


def assert_follows_again(service: Service, shape: Mapping[str, object]) -> None:
    """See that each replica notices a deletion, which takes a watch that works."""
    api = service.scene.api
    name = template_of(service.dry_run(pod("probe", shape)))
    for replica in service.replicas.running:
        api.delete(TEMPLATES, name, namespace=service.namespace)

        def is_back(asked: Replica = replica) -> Json | None:
            assert answer_of_replica(asked, service.namespace, shape)["allowed"]
            return api.find(TEMPLATES, name, namespace=service.namespace)

        until(is_back, what="the watch tells of deletions", tolerate=TROUBLE)


def answer_of_replica(replica: Replica, namespace: str, shape: Mapping[str, object]) -> Json:
    """Have one replica review a pod, as the API server would."""
    body = json.dumps(review_of(pod("probe", shape), namespace=namespace))
    with closing(replica.connection()) as connection:
        connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
        response: Json = json.loads(connection.getresponse().read())["response"]
    return response


def test_an_api_server_that_is_killed_and_comes_back_is_followed_again(service: Service) -> None:
    name = template_of(service.create(pod("before", KNOWN)))
    with same_processes(service):
        service.scene.cluster.restart(API_SERVER)
        with service.recording() as recorded:
            after = until(
                lambda: service.create(pod("after", KNOWN)), what="pods go on", tolerate=TROUBLE
            )
            new = service.create(pod("new", NEW))

        assert template_of(after) == name
        # What was known needed nobody, and what is new was created once.
        writes = [event for event in asked_by_webhook(recorded) if event.is_write]
        assert [(event.name, event.code) for event in writes] == [(template_of(new), 201)]
        assert_follows_again(service, KNOWN)
    assert len(service.objects(TEMPLATES)) == 2


def test_an_etcd_that_hangs_for_ten_seconds_delays_and_changes_nothing(service: Service) -> None:
    """Known shapes are reviewed meanwhile; a new one is refused in time, and works afterwards."""
    service.create(pod("before", KNOWN))
    etcd = service.scene.cluster.processes[ETCD]
    with same_processes(service):
        with etcd.paused(), created_meanwhile(service, KNOWN) as known:
            started = monotonic()
            for replica in service.replicas.running:
                assert answer_of_replica(replica, service.namespace, KNOWN)["allowed"]
            with pytest.raises(ApiError) as refused:
                service.create(pod("new", NEW))
            assert monotonic() - started < PAUSE_S
            until(lambda: monotonic() - started > PAUSE_S, what="ten seconds have passed")

        assert all(is_converted(each) for each in known)
        assert "failed calling webhook" in refused.value.message
        assert "did not answer within" in refused.value.message
        with service.recording() as recorded:
            until(lambda: service.create(pod("new", NEW)), what="it works", tolerate=TROUBLE)
        stored = [event for event in asked_by_webhook(recorded) if event.code == 201]
        assert len(stored) <= 1
        assert_follows_again(service, NEW)
    assert len(service.objects(TEMPLATES)) == 2


@contextmanager
def created_meanwhile(service: Service, shape: Mapping[str, object]) -> Iterator[list[Json]]:
    """Create a pod by a client that waits as long as it takes; yield what it gets in the end."""
    seen: list[Json] = []

    def create() -> None:
        with Api(service.scene.cluster.kubeconfig) as api:
            wanted = pod("meanwhile", shape)
            seen.append(
                until(
                    lambda: api.create("pods", wanted, namespace=service.namespace),
                    what="the pod is created",
                    tolerate=TROUBLE,
                )
            )

    thread = threading.Thread(target=create)
    thread.start()
    try:
        yield seen
    finally:
        thread.join()


def listed_again(service: Service, replica: Replica) -> bool:
    """Tell whether a replica was told that its watch of templates is too old."""
    said = f"watch of /apis/resource.k8s.io/v1/{TEMPLATES} is too old, listing again"
    return said in service.scene.cluster.logs(replica.process.name)


def test_a_watch_that_expired_is_followed_by_a_new_list(service: Service) -> None:
    """While the replicas hang, a template goes and the API server forgets how it was before."""
    name = template_of(service.create(pod("before", KNOWN)))
    with same_processes(service):
        with ExitStack() as stack:
            for replica in service.replicas.running:
                stack.enter_context(replica.process.paused())
            service.scene.api.delete(TEMPLATES, name, namespace=service.namespace)
            service.scene.cluster.restart(API_SERVER)
        for replica in service.replicas.running:
            until(partial(listed_again, service, replica), what=f"{replica.process.name} lists")

        def is_back() -> Json | None:
            service.create({**pod("", KNOWN), "metadata": {"generateName": "after-"}})
            return service.scene.api.find(TEMPLATES, name, namespace=service.namespace)

        until(is_back, what="the template is created again", tolerate=TROUBLE)
        assert_follows_again(service, NEWER)
    assert len(service.objects(TEMPLATES)) == 2
