"""A dry run is reviewed like any creation, and nothing is written for it: the audit log says so."""

import copy
import json
from collections.abc import Callable

import pytest

from hami_dra.kube.errors import ApiError
from hami_dra.lab.replica import IDENTITY
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.registration import NAME
from tests.e2e.faults import TEMPLATES, Service, is_converted, template_of
from tests.e2e.world import limit_range, pod
from tests.webhook.reviews import gpu_pod

pytestmark = pytest.mark.cluster

SHAPE = {"gpu": 1, "gpumem": 4000, "gpucores": 40}
READS = {"get", "list", "watch"}


def nothing(_service: Service) -> None:
    """Leave the namespace as it is."""


def settled(service: Service, manifest: Json) -> Json:
    """Create a pod and wait for its claim, which is reviewed too."""
    created = service.create(manifest)
    until(lambda: service.objects("resourceclaims"), what="the pod has its claim")
    return created


def shape_is_known(service: Service) -> None:
    settled(service, pod("before", SHAPE))


def cards_are_known(service: Service) -> None:
    service.add_node("a", a100_80g=1)
    service.await_card_sizes(81920)


def default_comes_back(service: Service) -> None:
    """Have the API server call us a second time."""
    service.apply(limit_range(default={"nvidia.com/gpu": "1"}))
    service.await_limit_range("bounds")


def name_is_taken(service: Service) -> None:
    another = template_of(settled(service, pod("other", {"gpu": 1, "gpumem": 5})))
    name = template_of(service.dry_run(pod("p", SHAPE)))
    api = service.scene.api
    spec = api.get(TEMPLATES, another, namespace=service.namespace)["spec"]
    api.create(TEMPLATES, {"metadata": {"name": name}, "spec": spec}, namespace=service.namespace)


def with_init_containers() -> Json:
    found = gpu_pod("p", gpu="1", gpumem="4000")
    [main] = found["spec"]["containers"]
    sidecar = {**copy.deepcopy(main), "name": "sidecar", "restartPolicy": "Always"}
    init = {**copy.deepcopy(main), "name": "init"}
    init["resources"]["limits"]["nvidia.com/gpumem"] = "9000"
    found["spec"]["initContainers"] = [init, sidecar]
    return found


CASES: dict[str, tuple[Callable[[Service], None], Json, bool]] = {
    "a known shape": (shape_is_known, pod("p", SHAPE), True),
    "a new shape": (nothing, pod("p", SHAPE), True),
    "a refused pod": (nothing, pod("p", {"gpu": 1, "gpumem": "16Gi"}), False),
    "a percentage": (cards_are_known, pod("p", {"gpu": 1, "gpumem-percentage": 25}), True),
    "init containers": (nothing, with_init_containers(), True),
    "a second round": (default_comes_back, pod("p", SHAPE), True),
    # The patch is the same as without a dry run, which alone would find the other template.
    "a taken name": (name_is_taken, pod("p", SHAPE), True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_dry_run_of_any_pod_makes_the_webhook_write_nothing(service: Service, case: str) -> None:
    prepare, manifest, is_admitted = CASES[case]
    prepare(service)
    templates = service.objects(TEMPLATES)
    with service.recording() as recorded:
        if is_admitted:
            assert is_converted(service.dry_run(manifest))
        else:
            with pytest.raises(ApiError, match="unit is MiB"):
                service.dry_run(manifest)

    rounds = 2 if prepare is default_comes_back else 1
    events = recorded.events()
    [dry] = [each for each in events if each.is_dry_run and each.namespace == service.namespace]
    assert dry.reviews == (NAME,) * rounds
    assert [each for each in events if each.user == IDENTITY and each.verb not in READS] == []
    assert service.objects(TEMPLATES) == templates


def test_a_dry_run_of_workloads_by_kubectl_makes_nobody_write_anything(service: Service) -> None:
    manifest = pod("p", {"gpu": 1, "gpumem": 4444})
    template = {"metadata": {"labels": {"app": "a"}}, "spec": manifest["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
    }
    text = "\n---\n".join(json.dumps(each) for each in (manifest, deployment))
    with service.recording() as recorded:
        service.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text)
        # Exit code 1 says that there is a difference, which is the whole of both.
        assert service.kubectl("diff", "-f", "-", stdin=text, check=False).returncode == 1

    events = recorded.events()
    dry = [event for event in events if event.is_dry_run and event.namespace == service.namespace]
    assert {event.resource for event in dry} == {"pods", "deployments"}
    assert [
        event for event in events if event.is_write and event.namespace == service.namespace
    ] == []
    assert service.objects(TEMPLATES) == []
