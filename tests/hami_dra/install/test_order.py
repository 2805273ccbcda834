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


def test_installation_ends_with_what_calls_and_what_refuses() -> None:
    for certificates in Certificates:
        order = kinds(stages(objects(Choice(certificates=certificates))).forwards())

        workload, calls = order.index("Deployment"), positions_of_calls(order)
        assert order[0] == "Namespace"
        assert calls == list(range(workload + 1, len(order) - 2))
        assert order[-2:] == REFUSING[::-1]


def test_removal_begins_with_what_refuses_and_then_what_calls() -> None:
    order = kinds(stages(everything("gpu")).backwards())

    assert order[:2] == REFUSING
    assert positions_of_calls(order) == list(range(2, order.index("Deployment")))
    assert order[-1] == "Namespace"


def test_removal_covers_every_way_to_install_once() -> None:
    removed = [str(item) for item in stages(everything("gpu")).backwards()]

    assert len(set(removed)) == len(removed)
    for certificates in Certificates:
        installed = objects(Choice(certificates=certificates, namespace="gpu"))
        names = {(item["kind"], item["metadata"]["name"]) for item in installed}
        assert names <= {(item["kind"], item["metadata"]["name"]) for item in everything("gpu")}
