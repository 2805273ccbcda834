"""Nobody is called before he is ready, and nobody refuses what nobody converts."""

from hami_dra.install.manifests import Certificates, Choice, everything, objects
from hami_dra.install.order import stages
from hami_dra.migration import Json

REFUSING = ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"]
CALLING = "WebhookConfiguration"


def kinds(found: list[Json]) -> list[str]:
    return [item["kind"] for item in found]


def positions_of_calls(order: list[str]) -> list[int]:
    return [place for place, kind in enumerate(order) if kind.endswith(CALLING)]


def test_installation_ends_with_what_calls_what_refuses_and_the_agents() -> None:
    for certificates in Certificates:
        order = kinds(stages(objects(Choice(certificates=certificates))).forwards())

        workload, calls = order.index("Deployment"), positions_of_calls(order)
        assert order[:2] == ["Namespace", "Namespace"]
        assert calls == list(range(workload + 1, len(order) - 5))
        assert order[-5:] == [*doubled(REFUSING[::-1]), "DaemonSet"]


def test_removal_begins_with_the_agents_then_what_refuses_and_then_what_calls() -> None:
    order = kinds(stages(everything("gpu")).backwards())

    assert order[:5] == ["DaemonSet", *doubled(REFUSING)]
    assert positions_of_calls(order) == list(range(5, order.index("Deployment")))
    assert order[-2:] == ["Namespace", "Namespace"]


def test_who_has_another_driver_gets_no_agent() -> None:
    found = objects(Choice(node_agent=False))

    assert "hami-dra-node" not in str(found)
    assert found
    kept = everything("gpu", node_agent=False)
    assert "hami-dra-node" not in str(kept), "and keeps one that is there"


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
