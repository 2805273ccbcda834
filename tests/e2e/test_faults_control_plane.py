"""The control plane goes away and comes back; the webhook finds its way without a restart."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
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
        with ThreadPoolExecutor(1) as clients:
            with etcd.paused():
                started = monotonic()
                late = clients.submit(create_patiently, service, pod("late", KNOWN))
                for replica in service.replicas.running:
                    assert answer_of_replica(replica, service.namespace, KNOWN)["allowed"]
                with pytest.raises(ApiError) as refused:
                    service.create(pod("new", NEW))
                until(lambda: monotonic() - started > PAUSE_S, what="ten seconds have passed")
            assert is_converted(late.result())

        assert "failed calling webhook" in refused.value.message
        assert "did not answer within 4 s" in refused.value.message
        with service.recording() as recorded:
            until(lambda: service.create(pod("new", NEW)), what="it works", tolerate=TROUBLE)
        stored = [event for event in asked_by_webhook(recorded) if event.code == 201]
        assert len(stored) <= 1
        assert_follows_again(service, NEW)
    assert len(service.objects(TEMPLATES)) == 2


def create_patiently(service: Service, manifest: Json) -> Json:
    """Create a pod by a client of its own, which tries until the server has recovered."""
    with Api(service.scene.cluster.kubeconfig) as api:
        name, where = manifest["metadata"]["name"], service.namespace
        return until(
            lambda: (
                api.find("pods", name, namespace=where)
                or api.create("pods", manifest, namespace=where)
            ),
            what="the pod is created",
            tolerate=TROUBLE,
        )


def test_replicas_that_sleep_through_a_deletion_and_a_restart_notice_both(
    service: Service,
) -> None:
    """Nobody told them: their watches are broken when they wake, so they list again."""
    name = template_of(service.create(pod("before", KNOWN)))
    with same_processes(service):
        with ExitStack() as stack:
            for replica in service.replicas.running:
                stack.enter_context(replica.process.paused())
            service.scene.api.delete(TEMPLATES, name, namespace=service.namespace)
            service.scene.cluster.restart(API_SERVER)

        def is_back() -> Json | None:
            service.create({**pod("", KNOWN), "metadata": {"generateName": "after-"}})
            return service.scene.api.find(TEMPLATES, name, namespace=service.namespace)

        until(is_back, what="the template is created again", tolerate=TROUBLE)
        assert_follows_again(service, NEWER)
    assert len(service.objects(TEMPLATES)) == 2
