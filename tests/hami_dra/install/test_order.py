"""Nobody is called before he is ready, and nobody refuses what nobody converts."""

from hami_dra.install.manifests import (
    Certificates,
    Choice,
    everything,
    identity,
    is_needed_by_pods,
    objects,
)
from hami_dra.install.order import stages
from hami_dra.migration import Json

REFUSING = ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"]
CALLING = "WebhookConfiguration"


def kinds(found: list[Json]) -> list[str]:
    return [item["kind"] for item in found]


def positions_of_calls(order: list[str]) -> list[int]:
    return [place for place, kind in enumerate(order) if kind.endswith(CALLING)]


SHOWING = ["hami-dra-node", "hami-dra-monitor"]


def test_installation_ends_with_what_calls_what_refuses_and_the_agents() -> None:
    for certificates in Certificates:
        found = stages(objects(Choice(certificates=certificates))).forwards()
        order = kinds(found)

        workload, calls = order.index("Deployment"), positions_of_calls(order)
        assert order[:2] == ["Namespace", "Namespace"]
        assert calls == list(range(workload + 1, len(order) - 6))
        assert order[-6:] == [*doubled(REFUSING[::-1]), "DaemonSet", "DaemonSet"]
        assert [each["metadata"]["name"] for each in found[-2:]] == SHOWING


def test_removal_begins_with_the_agents_then_what_refuses_and_then_what_calls() -> None:
    found = stages(everything("gpu")).backwards()
    order = kinds(found)

    assert order[:6] == ["DaemonSet", "DaemonSet", *doubled(REFUSING)]
    assert [each["metadata"]["name"] for each in found[:2]] == SHOWING[::-1]
    assert positions_of_calls(order) == list(range(6, order.index("Deployment")))
    assert order[-2:] == ["Namespace", "Namespace"]


def test_who_has_another_driver_gets_no_agent() -> None:
    found = objects(Choice(node_agent=False))

    assert "hami-dra-node" not in str(found)
    assert found
    assert "hami-dra-monitor" not in str(found), "which would show nothing"
    removed = {identity(item) for item in everything("gpu", node_agent=False)}
    assert not [each for each in removed if each[1] == "hami-dra-node"], "and keeps one"
    assert ("DaemonSet", "hami-dra-monitor") in removed, "which needs no monitor"


def test_a_monitor_can_be_left_out_and_is_needed_by_no_pod() -> None:
    found = objects(Choice(monitor=False))

    assert "hami-dra-monitor" not in str(found)
    needed = [each for each in everything("gpu") if is_needed_by_pods(each)]
    assert [identity(each) for each in needed] == [("DaemonSet", "hami-dra-node")]


def doubled(found: list[str]) -> list[str]:
    """Return the kinds of the webhook's guard and of the agents' policy."""
    return [kind for kind in found for _ in range(2)]


def test_removal_covers_every_way_to_install_once() -> None:
    removed = [str(item) for item in stages(everything("gpu")).backwards()]

    assert len(set(removed)) == len(removed)
    for certificates in Certificates:
        installed = objects(Choice(certificates=certificates, namespace="gpu"))
        names = {(item["kind"], item["metadata"]["name"]) for item in installed}
        assert names <= {(item["kind"], item["metadata"]["name"]) for item in everything("gpu")}
