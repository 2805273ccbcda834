"""What is waited for is said, and ends when the work is done."""

import pytest

from hami_dra.install.progress import Standstill, complaints, lacks
from hami_dra.migration import Json


def deployment(**status: object) -> Json:
    seen: Json = {"observedGeneration": 2, **status}
    return {
        "kind": "Deployment",
        "metadata": {"name": "webhook", "generation": 2},
        "spec": {"replicas": 2},
        "status": seen,
    }


DONE = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (deployment(**DONE), ""),
        (deployment(observedGeneration=1), "its controller has not seen it yet"),
        (deployment(), "0 of 2 replicas are of the new revision"),
        (deployment(**{**DONE, "replicas": 3}), "1 replicas of the old revision have to go"),
        (deployment(**{**DONE, "availableReplicas": 1}), "1 of 2 replicas are ready"),
        ({**deployment(), "status": None}, "its controller has not seen it yet"),
    ],
)
def test_a_deployment_is_awaited_until_its_new_pods_alone_are_ready(item: Json, said: str) -> None:
    assert lacks(item) == said


def daemon_set(**status: int) -> Json:
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "generation": 1},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 3, **status},
    }


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (daemon_set(updatedNumberScheduled=3, numberAvailable=3), ""),
        (daemon_set(updatedNumberScheduled=1), "1 of 3 pods are of the new revision"),
        (daemon_set(updatedNumberScheduled=3, numberAvailable=2), "2 of 3 pods are ready"),
        (daemon_set(observedGeneration=0), "its controller has not seen it yet"),
    ],
)
def test_a_daemon_set_is_awaited_on_every_node(item: Json, said: str) -> None:
    assert lacks(item) == said


@pytest.mark.parametrize(
    ("bundles", "said"),
    [
        (["eA==", "eA=="], ""),
        (["eA==", ""], "nobody has written the caBundle of hook-1 yet"),
        (["", None], "nobody has written the caBundle of hook-0, hook-1 yet"),
    ],
)
def test_a_registration_is_awaited_until_all_of_it_is_trusted(
    bundles: list[str | None], said: str
) -> None:
    hooks = [
        {
            "name": f"hook-{number}",
            "clientConfig": {} if bundle is None else {"caBundle": bundle},
        }
        for number, bundle in enumerate(bundles)
    ]

    assert lacks({"kind": "MutatingWebhookConfiguration", "webhooks": hooks}) == said


def test_everything_else_is_done_when_it_is_stored() -> None:
    assert lacks({"kind": "Service"}) == ""


def test_complaints_are_those_of_the_cluster() -> None:
    failing = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": 'pods "webhook-1" is forbidden: exceeded quota',
    }
    pending = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    pods: list[Json] = [
        {"metadata": {"name": "a"}, "status": {"conditions": [pending]}},
        {
            "metadata": {"name": "b"},
            "status": {"containerStatuses": [{"name": "webhook", "state": {"waiting": waiting}}]},
        },
        {
            "metadata": {"name": "c"},
            "status": {
                "containerStatuses": [{"name": "webhook", "ready": False, "state": {"running": {}}}]
            },
        },
        {"metadata": {"name": "d"}},
    ]

    assert list(complaints(deployment(conditions=[failing]), pods, ())) == [
        'pods "webhook-1" is forbidden: exceeded quota',
        "pod a: 0/3 nodes are available",
        "pod b: ImagePullBackOff: not found",
        "pod c: webhook runs and is not ready; see its log",
    ]


def warning(uid: str, message: str, *, last: str) -> Json:
    return {"type": "Warning", "involvedObject": {"uid": uid}, "message": message, **seen(last)}


def seen(last: str) -> Json:
    return {"lastTimestamp": last, "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}


EVENTS: list[Json] = [
    warning("agents", 'RuntimeClass "nvidia" not found', last="2026-01-01T00:09:00Z"),
    warning("agents", "before it was another one", last="2026-01-01T00:02:00Z"),
    {**warning("agents", "created pod: a", last="2026-01-01T00:10:00Z"), "type": "Normal"},
    warning("a", 'secret "tls" not found', last="2026-01-01T00:03:00Z"),
    {
        **warning("a", "before", last=""),
        "lastTimestamp": None,
        "eventTime": "2026-01-01T00:01:00.000000Z",
    },
]


def test_why_pods_of_a_daemon_set_are_not_created_is_said_by_events() -> None:
    """It has no condition that would say so."""
    agents = daemon_set(updatedNumberScheduled=1)
    agents["metadata"]["uid"] = "agents"

    assert list(complaints(agents, [], EVENTS)) == ['RuntimeClass "nvidia" not found']
    agents["status"]["updatedNumberScheduled"] = 3
    assert list(complaints(agents, [], EVENTS)) == [], "that was before"


def test_what_a_container_waits_for_without_a_word_is_said_by_events() -> None:
    creating = {"name": "webhook", "state": {"waiting": {"reason": "ContainerCreating"}}}
    pod: Json = {
        "metadata": {"name": "a", "uid": "a"},
        "status": {"containerStatuses": [creating]},
    }

    assert list(complaints(deployment(), [pod], EVENTS)) == [
        'pod a: ContainerCreating: secret "tls" not found'
    ]
    assert list(complaints(deployment(), [pod], ())) == ["pod a: ContainerCreating"]


def test_what_gets_further_is_waited_for_and_what_goes_back_and_forth_is_not() -> None:
    standstill = Standstill(300)

    assert not standstill.is_reached("1 of 9 pods are ready", 0)
    assert not standstill.is_reached("2 of 9 pods are ready", 299)
    assert not standstill.is_reached("1 of 9 pods are ready", 300)
    assert not standstill.is_reached("2 of 9 pods are ready", 598)
    assert standstill.is_reached("1 of 9 pods are ready", 599)
