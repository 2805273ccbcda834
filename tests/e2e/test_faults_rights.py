"""The webhook has just the rights that it uses: each granted verb has a path that needs it.

Whoever grants a verb adds the path that uses it to `PATHS`; whoever adds a path names its verbs.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import pytest

from hami_dra.kube.ledgers import PREFIX
from hami_dra.kube.unused import WORKLOADS, Source
from hami_dra.lab.api import Api
from hami_dra.lab.audit import Recording
from hami_dra.lab.replica import IDENTITY
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from tests.e2e.faults import TEMPLATES, Service, template_of
from tests.e2e.quotas import claim, set_quota
from tests.e2e.rotation import CONFIGURATIONS, Rotation, bundles, overwrite_bundles
from tests.e2e.world import pod

pytestmark = pytest.mark.cluster

Right = tuple[str, str, str]
"""API group, resource and verb."""

DRA = "resource.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
VALIDATING = "validatingwebhookconfigurations"
SHAPE = {"gpu": 1, "gpumem": 5000, "gpucores": 50}


@dataclass(frozen=True, slots=True)
class Path:
    """Something that the webhook does.

    Attributes:
        walk: has it done.
        uses: the rights that it takes.
    """

    walk: Callable[[Service], None]
    uses: frozenset[Right]


def start_a_replica(service: Service) -> None:
    service.replicas.forget(service.replicas.start())


def see_a_new_shape(service: Service) -> None:
    service.create(pod("p", SHAPE))


def meet_a_template_of_somebody_elses(service: Service) -> None:
    """One that the watch does not show, since it lacks our label."""
    name = template_of(service.create(pod("p", SHAPE)))
    api = service.scene.api
    spec = api.get(TEMPLATES, name, namespace=service.namespace)["spec"]
    api.delete(TEMPLATES, name, namespace=service.namespace)
    api.create(TEMPLATES, {"metadata": {"name": name}, "spec": spec}, namespace=service.namespace)

    def was_read() -> bool:
        with service.recording() as recorded:
            api.delete("pods", "q", namespace=service.namespace)
            service.create(pod("q", SHAPE))
        return (DRA, TEMPLATES, "get") in used(recorded)

    until(was_read, what="the replicas noticed")


def lose_the_secret(service: Service) -> None:
    rotation = Rotation(service.scene.api, service.replicas.running)
    intact = rotation.secret()["data"]
    rotation.delete_secret()
    until(
        lambda: service.scene.api.find("secrets", f"{NAME}-ca", namespace=SYSTEM_NAMESPACE),
        what="the Secret is back",
    )
    assert rotation.secret()["data"] == intact


def find_the_secret_damaged(service: Service) -> None:
    rotation = Rotation(service.scene.api, service.replicas.running)
    intact = rotation.secret()["data"]
    rotation.write_secret({**intact, "ca.crt": "anVuaw=="})
    until(lambda: rotation.secret()["data"] == intact, what="the Secret is repaired")


def find_registrations_that_trust_another(service: Service) -> None:
    api = service.scene.api
    [truth] = Rotation(api, service.replicas.running).bundles()
    other = base64.b64encode(service.scene.cluster.ca_pem).decode()
    is_ours = api.find(VALIDATING, NAME) is None
    if is_ours:
        api.create(VALIDATING, validating_registration(truth))
    try:
        for kind in (CONFIGURATIONS, VALIDATING):
            overwrite_bundles(api, kind, other)
            until(partial(is_right, api, kind, truth), what=f"the {kind} are right again")
    finally:
        if is_ours:
            api.delete(VALIDATING, NAME)


def is_right(api: Api, kind: str, truth: str) -> bool:
    """Tell whether our registration of a kind trusts the authority of the replicas."""
    return bundles(api, kind) == {truth}


def validating_registration(bundle: str) -> Json:
    """Write a registration under our name that is called for nothing."""
    never = {"matchLabels": {"hami-dra.io/no-such-label": "none"}}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods"],
        "operations": ["CREATE"],
    }
    webhook = {
        "name": "none.hami-dra.io",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "objectSelector": never,
        "rules": [rule],
        "clientConfig": {"url": "https://127.0.0.1:1/", "caBundle": bundle},
    }
    return {"metadata": {"name": NAME}, "webhooks": [webhook]}


def notice_what_a_workload_loses(service: Service) -> None:
    manifest = pod("p", SHAPE, annotations={"hami.io/node-scheduler-policy": "binpack"})
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": True}
    manifest["metadata"]["ownerReferences"] = [{**owner, "uid": str(uuid4())}]
    service.create(manifest)


def reserve_for_a_claim(service: Service) -> None:
    """On top of a ledger that the watch does not show, since it lacks our label."""
    api, name = service.scene.api, f"{PREFIX}{service.namespace}"
    set_quota(service, {"limits.nvidia.com/gpumem": 16000})
    api.create("configmaps", {"metadata": {"name": name}}, namespace=SYSTEM_NAMESPACE)
    try:
        api.create("resourceclaims", claim("c", "1000Mi"), namespace=service.namespace)
    finally:
        api.delete("configmaps", name, namespace=SYSTEM_NAMESPACE)


def sweep_what_nobody_needs(service: Service) -> None:
    name = template_of(service.create(pod("p", SHAPE)))
    service.delete("p")
    api = service.scene.api
    sweeping = service.replicas.start("--template-ttl-s", "1", "--sweep-period-s", "1")
    try:
        until(
            lambda: api.find(TEMPLATES, name, namespace=service.namespace) is None,
            what="the template is swept",
        )
    finally:
        service.replicas.forget(sweeping)


def rights(group: str, resource: str, *verbs: str) -> frozenset[Right]:
    """Return the rights to do something with a resource."""
    return frozenset((group, resource, verb) for verb in verbs)


def group_of(source: Source) -> str:
    """Return the API group of a kind."""
    return source.root.removeprefix("/apis/").rpartition("/")[0] if "apis" in source.root else ""


PATHS: dict[str, Path] = {
    "start": Path(
        start_a_replica,
        rights(DRA, TEMPLATES, "list", "watch")
        | rights(DRA, "resourceslices", "list", "watch")
        | rights(DRA, "resourceclaims", "list", "watch")
        | rights("", "limitranges", "list", "watch")
        | rights("", "resourcequotas", "list", "watch")
        | rights("", "configmaps", "list", "watch")
        | rights("", "secrets", "get", "list", "watch")
        | rights(ADMISSION, CONFIGURATIONS, "get", "list", "watch")
        | rights(ADMISSION, VALIDATING, "get", "list", "watch"),
    ),
    "a new shape": Path(see_a_new_shape, rights(DRA, TEMPLATES, "create")),
    "a template of somebody else's": Path(
        meet_a_template_of_somebody_elses, rights(DRA, TEMPLATES, "create", "get")
    ),
    "a lost hint": Path(notice_what_a_workload_loses, rights("events.k8s.io", "events", "create")),
    "a claim under a quota": Path(
        reserve_for_a_claim,
        rights("", "namespaces", "get") | rights("", "configmaps", "create", "get", "update"),
    ),
    "a template that nobody needs": Path(
        sweep_what_nobody_needs,
        rights(DRA, TEMPLATES, "list", "get", "patch", "delete")
        | rights(DRA, "resourceclaims", "list")
        | frozenset[Right]().union(
            *(rights(group_of(source), source.resource, "list") for source in WORKLOADS)
        ),
    ),
    "a lost Secret": Path(lose_the_secret, rights("", "secrets", "get", "create")),
    "a damaged Secret": Path(find_the_secret_damaged, rights("", "secrets", "get", "update")),
    "a registration that trusts another": Path(
        find_registrations_that_trust_another,
        rights(ADMISSION, CONFIGURATIONS, "get", "update")
        | rights(ADMISSION, VALIDATING, "get", "update"),
    ),
}


def used(recorded: Recording) -> set[Right]:
    """Return the rights that the webhook has used."""
    events = recorded.events(user=IDENTITY)
    return {(event.group, event.resource, event.verb) for event in events if event.resource}


def granted(service: Service) -> Iterator[Right]:
    """Yield the rights that the webhook's ServiceAccount has by roles of its own."""
    for rule in (rule for role in roles(service) for rule in role["rules"]):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


def roles(service: Service) -> Iterator[Json]:
    """Yield the roles that are bound to the ServiceAccount by name, wherever that is."""
    api = service.scene.api
    for binding in (*api.list("clusterrolebindings"), *api.list("rolebindings")):
        named = {(x.get("namespace"), x["name"]) for x in binding.get("subjects", ())}
        if (SYSTEM_NAMESPACE, NAME) not in named:
            continue
        role = binding["roleRef"]
        if role["kind"] == "ClusterRole":
            yield api.get("clusterroles", role["name"])
        else:
            where = binding["metadata"]["namespace"]
            yield api.get("roles", role["name"], namespace=where)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_uses_the_rights_that_it_names_and_is_refused_none(
    service: Service, name: str
) -> None:
    path = PATHS[name]
    with service.recording() as recorded:
        path.walk(service)

    # A watch begins a moment after what it follows was listed.
    until(lambda: path.uses <= used(recorded), what=f"{name} has used {sorted(path.uses)}")
    refused = [event for event in recorded.events(user=IDENTITY) if event.code in {401, 403}]
    assert refused == []


def test_every_right_that_is_granted_is_used_by_some_path(service: Service) -> None:
    named = frozenset[Right]().union(*(path.uses for path in PATHS.values()))

    given = set(granted(service))

    assert given - named == set(), "granted and used by no path: take it back, or add the path"
    assert named - given == set(), "named by a path and not granted"
