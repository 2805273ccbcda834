"""What a good cluster shows, to be broken one way each."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

from certs.authority import KeyPair, Usage, create_authority, issue
from hami_dra.migration import Json, Policy
from hami_dra.migration.names import DRIVER
from hami_dra.migration.registration import (
    claim_webhook_configuration,
    guard,
    webhook_configuration,
)
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from hami_dra.preflight.collect import node_of, pool_of
from hami_dra.preflight.evidence import Evidence, Node, Pool, Probe, Rate, Served

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = Policy()

AUTHORITY = create_authority("test", now=NOW, lifetime=timedelta(days=300))


def leaf(authority: KeyPair = AUTHORITY, *, now: datetime = NOW, days: float = 30) -> bytes:
    """Issue a serving certificate."""
    usages = [Usage.SERVER]
    lifetime = timedelta(days=days)
    return issue(
        authority, common_name="w", usages=usages, now=now, lifetime=lifetime, dns_names=["w"]
    ).certificate_pem


def client_config(*authorities: KeyPair) -> Json:
    """Write how the API server reaches and trusts the webhook."""
    bundle = b"".join(each.certificate_pem for each in authorities or (AUTHORITY,))
    service = {"namespace": "hami-dra-system", "name": "hami-dra-webhook"}
    return {"service": service, "caBundle": base64.b64encode(bundle).decode()}


def registration(policy: Policy = POLICY, **changed: object) -> Json:
    """Write our registration, with changed fields of its webhook."""
    written = webhook_configuration(policy, client_config())
    written["webhooks"][0] |= changed
    return written


def claims_registration(policy: Policy = POLICY, **changed: object) -> Json:
    """Write the registration for claims, with changed fields of its webhook."""
    written = claim_webhook_configuration(policy, client_config())
    written["webhooks"][0] |= changed
    return written


def another(name: str, hook: str = "x.example", resource: str = "pods") -> Json:
    """Write somebody else's registration."""
    rule = {"apiGroups": [""], "operations": ["CREATE"], "resources": [resource]}
    return {"metadata": {"name": name}, "webhooks": [{"name": hook, "rules": [rule]}]}


def pools(
    profile: str = "l4-24g", count: int = 2, node: str = "n1", **changed: object
) -> list[Pool]:
    """Publish the cards of a node, with changed fields of each card."""
    item = resource_slice(cards(profile, count, node), node=node, node_uid="u", driver=DRIVER)
    for device in item["spec"]["devices"]:
        device.update(changed)
    return [pool_of(item)]


def device_class(name: str = DRIVER, driver: str = DRIVER, extended: str = "") -> Json:
    """Write a DeviceClass."""
    spec: Json = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"metadata": {"name": name}, "spec": spec}


def node(name: str = "n1", annotations: Json | None = None, **allocatable: str) -> Node:
    """Write a node; `gpu` means `nvidia.com/gpu`."""
    named = {f"nvidia.com/{key}": amount for key, amount in allocatable.items()}
    return node_of(
        {
            "metadata": {"name": name, "annotations": annotations or {}},
            "status": {"allocatable": {"cpu": "4", **named}},
        }
    )


def template(request: Json) -> Probe:
    """Return a template as the API server would store it."""
    requests = [{"name": "gpu", **request}]
    return Probe({"spec": {"spec": {"devices": {"requests": requests}}}})


def named(name: str, **spec: object) -> Json:
    """Write an object of the namespace `team`."""
    return {"metadata": {"namespace": "team", "name": name}, "spec": spec}


def good(**changed: object) -> Evidence:
    """Return what a good cluster shows, with changed parts."""
    admission, binding = guard(POLICY)
    served = ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses")
    parts: dict[str, Any] = {
        "now": NOW,
        "server": {"gitVersion": "v1.37.2"},
        "api": {"resources": [{"name": each} for each in served]},
        "capacity": template({"exactly": {"capacity": {"requests": {"memory": "1Mi"}}}}),
        "alternatives": template({"firstAvailable": [{"name": "a"}]}),
        "classes": [device_class()],
        "pools": pools(),
        "nodes": [node()],
        "mutating": [registration()],
        "validating": claims_registration(),
        "guard": admission,
        "guard_binding": binding,
        "schedulers": [],
        "limit_ranges": [],
        "quotas": [],
        "pod": Probe({"spec": {"resourceClaims": [{"name": "gpu-probe"}]}}),
        "claim": Probe({"spec": {}}),
        "served": Served(leaf(), "", {"missing": []}),
        "rate": Rate(150, 1.2, 3.0),
    }
    return Evidence(**{**parts, **changed})
