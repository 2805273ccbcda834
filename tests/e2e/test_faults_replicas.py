"""Replicas die, and are replaced, while pods are being created."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hami_dra.lab.replica import Replica
from hami_dra.lab.wait import until
from tests.e2e.faults import TEMPLATES, Service, Storm, is_converted, storm, template_of
from tests.e2e.world import limit_range, pod

pytestmark = pytest.mark.cluster

SHAPE = {"gpu": 1, "gpumem": 2000, "gpucores": 20}
REVIEWS = "hami_dra_webhook_reviews_total"


def assert_all_arrived(service: Service, seen: Storm) -> None:
    """See that just the pods of the storm are there, each converted, all by one template."""
    pods = {each["metadata"]["name"]: each for each in service.objects("pods")}
    assert all(is_converted(each) for each in pods.values())
    assert set(seen.created) <= set(pods)
    assert len(seen.created) == len(set(seen.created))
    assert len({template_of(each) for each in pods.values()}) == 1
    assert len(service.objects(TEMPLATES)) == 1


def test_a_replica_killed_in_a_storm_costs_retries_and_no_pod(service: Service) -> None:
    replicas = service.replicas
    with service.nothing_but_admission():
        with storm(service, SHAPE) as seen:
            seen.await_more(40)
            dead = replicas.running[0]
            dead.process.signal(signal.SIGKILL)
            # For seconds the Service still leads to it: clients try again and get through.
            seen.await_more(40)
            replicas.leave(dead)
            seen.await_more(40)
            replicas.add()
            seen.await_more(40)

        assert all("failed calling webhook" in failure for failure in seen.failures), seen.failures
        assert_all_arrived(service, seen)
    assert dead.process.await_end() == -signal.SIGKILL
    replicas.forget(dead)


def drain_then_remove(service: Service, old: Replica, seen: Storm) -> None:
    """The process hears of its end before the last node hears that it is no endpoint."""
    before = old.metric(REVIEWS)
    old.process.signal(signal.SIGTERM)
    logs = service.scene.cluster.logs
    until(lambda: "draining" in logs(old.process.name), what="it has heard")
    until(lambda: old.metric(REVIEWS) > before + 5, what="it goes on to answer")
    service.replicas.leave(old)
    seen.await_more(20)


def remove_then_drain(service: Service, old: Replica, seen: Storm) -> None:
    """It is no endpoint any more, but connections to it are open and in use."""
    service.replicas.leave(old)
    seen.await_more(20)
    old.process.signal(signal.SIGTERM)


@pytest.mark.parametrize("replace", [drain_then_remove, remove_then_drain])
def test_replicas_are_replaced_one_by_one_without_a_failed_creation(
    service: Service, replace: Callable[[Service, Replica, Storm], None]
) -> None:
    replicas = service.replicas
    outgoing = list(replicas.running)
    with service.nothing_but_admission():
        with storm(service, SHAPE) as seen:
            for old in outgoing:
                replicas.add()
                replace(service, old, seen)
                assert old.process.await_end() == 0
                replicas.forget(old)
            seen.await_more(20)

        assert seen.failures == []
        assert_all_arrived(service, seen)


def test_while_a_policy_changes_each_pod_follows_one_of_both(
    service: Service, tmp_path: Path
) -> None:
    """Two replicas disagree; a LimitRange has each pod reviewed twice, maybe by both."""
    doubled = tmp_path / "policy.yaml"
    doubled.write_text(
        "apiVersion: hami-dra.io/v1alpha1\nkind: Policy\nfamilies:\n  - memoryFactor: 2\n"
    )
    before = service.replicas.options
    service.apply(limit_range(default={"nvidia.com/gpu": "1"}))
    service.await_limit_range("bounds")
    with service.nothing_but_admission():
        [old, other] = service.replicas.running
        service.replicas.options = (*before, "--policy", str(doubled))
        try:
            new, newer = service.replicas.start(), service.replicas.start()
        finally:
            service.replicas.options = before
        service.replicas.join(new)
        retire(service, other)
        # A client keeps to the connections that it has, which may all lead to one replica.
        service.replicas.balancer.drop()
        with storm(service, SHAPE) as seen:
            until(lambda: all(r.metric(REVIEWS) > 20 for r in (old, new)), what="both are asked")
        pods = service.objects("pods")
        names = {template_of(each) for each in pods}
        assert seen.failures == []
        assert all(is_converted(each) for each in pods)
        assert {memory_of(service, name) for name in names} == {"2000Mi", "4000Mi"}

        service.replicas.join(newer)
        retire(service, old)
        last = service.create(pod("last", SHAPE))

        assert memory_of(service, template_of(last)) == "4000Mi"
    for replica in (new, newer):
        retire(service, replica)


def retire(service: Service, replica: Replica) -> None:
    """Replace a replica in good order."""
    service.replicas.leave(replica)
    replica.process.signal(signal.SIGTERM)
    assert replica.process.await_end() == 0
    service.replicas.forget(replica)


def memory_of(service: Service, template: str) -> str:
    """Return the memory that a template asks for."""
    stored = service.scene.api.get(TEMPLATES, template, namespace=service.namespace)
    [request] = stored["spec"]["spec"]["devices"]["requests"]
    memory: str = request["exactly"]["capacity"]["requests"]["memory"]
    return memory
