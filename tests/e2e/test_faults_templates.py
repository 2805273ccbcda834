"""Templates under pressure: created once by many, and never believed when somebody changed them."""

import asyncio
import json

import httpx
import pytest

from hami_dra.kube.errors import ApiError, ConflictError
from hami_dra.lab.controlplane import CONTROLLER_MANAGER
from hami_dra.lab.ports import LOOPBACK
from hami_dra.lab.replica import trusting_anybody
from hami_dra.lab.wait import PATIENCE_S, until
from hami_dra.migration import Json
from tests.e2e.faults import TEMPLATES, Service, asked_by_webhook, is_converted, template_of
from tests.e2e.world import pod
from tests.webhook.reviews import review_of

pytestmark = pytest.mark.cluster

SHAPE = {"gpu": 1, "gpumem": 1000, "gpucores": 10}


async def ask_at_once(port: int, reviews: list[Json]) -> list[Json]:
    """Send reviews to one replica, each on a connection of its own, and return the answers."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(
        verify=trusting_anybody(), trust_env=False, limits=limits, timeout=PATIENCE_S
    ) as client:
        url = f"https://{LOOPBACK}:{port}/mutate"
        answers = await asyncio.gather(*(client.post(url, json=each) for each in reviews))
    return [answer.json()["response"] for answer in answers]


def test_64_first_requests_of_a_shape_at_one_replica_are_one_create(service: Service) -> None:
    reviews = [
        review_of(pod(f"p-{number}", SHAPE), uid=str(number), namespace=service.namespace)
        for number in range(64)
    ]
    with service.recording() as recorded:
        answers = asyncio.run(ask_at_once(service.replicas.running[0].port, reviews))

    assert [answer["uid"] for answer in answers] == [str(number) for number in range(64)]
    assert all(answer["allowed"] for answer in answers), answers
    [asked] = asked_by_webhook(recorded)
    assert (asked.verb, asked.code, asked.namespace) == ("create", 201, service.namespace)


def test_64_pods_of_a_new_shape_at_once_are_one_template_whichever_replica_is_asked(
    service: Service,
) -> None:
    with service.recording() as recorded, service.nothing_but_admission():
        seen = service.create_all([pod(f"p-{number}", SHAPE) for number in range(64)])

        assert all(isinstance(each, dict) and is_converted(each) for each in seen), seen
    asked = asked_by_webhook(recorded)
    assert [event.code for event in asked if event.verb == "create"].count(201) == 1
    # A replica that comes second is told so once, and looks once at what is there.
    replicas = len(service.replicas.running)
    assert sum(event.verb == "create" for event in asked) <= replicas
    assert sum(event.verb == "get" for event in asked) < replicas
    assert len(service.objects(TEMPLATES)) == 1


def test_1000_pods_in_a_burst_all_arrive_and_share_one_template(service: Service) -> None:
    service.create(pod("first", SHAPE))
    with service.recording() as recorded, service.nothing_but_admission():
        seen = service.create_all([pod(f"p-{number}", SHAPE) for number in range(1000)])

        failed = [each for each in seen if isinstance(each, ApiError)]
        assert failed == []
        [name] = {template_of(each) for each in seen if isinstance(each, dict)}
    assert [each["metadata"]["name"] for each in service.objects(TEMPLATES)] == [name]
    # The second replica may have been late to hear of the first pod's template, once.
    assert sum(event.verb == "create" for event in asked_by_webhook(recorded)) <= 1


def test_the_spec_of_a_template_cannot_be_edited(service: Service) -> None:
    """Why a template's name can be believed: Kubernetes keeps its content as it was."""
    name = template_of(service.create(pod("p", SHAPE)))
    api = service.scene.api
    stored = api.get(TEMPLATES, name, namespace=service.namespace)
    request = stored["spec"]["spec"]["devices"]["requests"][0]
    request["exactly"]["capacity"]["requests"]["memory"] = "1Mi"

    with pytest.raises(ApiError, match="immutable"):
        api.patch(TEMPLATES, name, {"spec": stored["spec"]}, namespace=service.namespace)

    assert is_converted(service.create(pod("next", SHAPE)))


def test_a_template_without_our_label_still_serves_its_shape(service: Service) -> None:
    """Labels can be edited; without ours the watch does not show it, so it is read."""
    name = template_of(service.create(pod("p", SHAPE)))
    label = {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}
    service.scene.api.patch(TEMPLATES, name, label, namespace=service.namespace)

    def was_read() -> bool:
        with service.recording() as recorded:
            service.scene.api.delete("pods", "next", namespace=service.namespace)
            assert template_of(service.create(pod("next", SHAPE))) == name
        return any(event.verb == "get" for event in asked_by_webhook(recorded))

    until(was_read, what="the webhook noticed that the label is gone")

    assert len(service.objects(TEMPLATES)) == 1


def test_a_template_deleted_in_use_comes_back_with_the_next_pod(service: Service) -> None:
    service.add_node("a", a100_80g=1)
    name = template_of(service.create(pod("before", SHAPE)))
    held = service.share("before")
    api = service.scene.api
    with service.scene.cluster.processes[CONTROLLER_MANAGER].paused():
        service.create(pod("between", SHAPE))
        api.delete(TEMPLATES, name, namespace=service.namespace)

    def is_back() -> Json | None:
        # Until the watch has told, the webhook believes that the template is there.
        api.delete("pods", "after", namespace=service.namespace)
        service.create(pod("after", SHAPE))
        return api.find(TEMPLATES, name, namespace=service.namespace)

    until(is_back, what="the template is created again")

    service.await_scheduled("between", "after")
    shares = {share.pod: (share.memory_mib, share.cores) for share in service.shares()}
    assert shares == dict.fromkeys(("before", "between", "after"), (held.memory_mib, held.cores))


@pytest.mark.parametrize("labels", [{"app.kubernetes.io/managed-by": "hami-dra"}, {}])
def test_a_name_taken_by_another_spec_refuses_pods_and_says_what_to_do(
    service: Service, labels: dict[str, str]
) -> None:
    """Whether the watch shows it or the conflict: nobody is given another share."""
    wanted = pod("p", SHAPE)
    name = template_of(service.dry_run(wanted))
    another = template_of(service.create(pod("other", {"gpu": 1, "gpumem": 9, "gpucores": 1})))
    api = service.scene.api
    spec = api.get(TEMPLATES, another, namespace=service.namespace)["spec"]
    impostor = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    api.create(TEMPLATES, impostor, namespace=service.namespace)

    with pytest.raises(ConflictError) as refused:
        service.create(wanted)

    said = refused.value.message
    assert f"ResourceClaimTemplate {service.namespace}/{name} exists with another spec" in said
    command = f"kubectl -n {service.namespace} delete resourceclaimtemplate {name}"
    assert command in said
    assert [each["metadata"]["name"] for each in service.objects("pods")] == ["other"]
    service.kubectl(*command.split()[1:])
    seen = until(lambda: service.create(wanted), what="it is noticed", tolerate=(ConflictError,))
    assert is_converted(seen)
    assert "1000Mi" in json.dumps(api.get(TEMPLATES, name, namespace=service.namespace)["spec"])
