"""Evidence of clusters broken one way each, and what must be said of them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from certs.authority import create_authority
from hami_dra.migration import Policy
from hami_dra.migration.registration import guard
from hami_dra.preflight.evidence import Hidden, Probe, Rate, Served
from hami_dra.preflight.fact import Status
from tests.hami_dra.preflight.evidence import (
    NOW,
    POLICY,
    another,
    claims_registration,
    client_config,
    device_class,
    leaf,
    named,
    node,
    pools,
    registration,
    template,
)

WARN, FAIL = Status.WARN, Status.FAIL
OLD = NOW - timedelta(days=400)
ENDED = create_authority("ended", now=OLD, lifetime=timedelta(days=365))
ENDING = create_authority("ending", now=OLD, lifetime=timedelta(days=405))
ADMISSION, BINDING = guard(POLICY)
OTHER_ADMISSION, _ = guard(Policy(families=()))
MANY_SIZES = [
    pool for profile in ("l4-24g", "a100-80g", "h100-80g") for pool in pools(profile, node=profile)
]


def limits(**sections: object) -> dict[str, Any]:
    return {"limit_ranges": [named("lr", limits=[sections])]}


GPU = {"nvidia.com/gpu": "2"}


def quota(key: str = "limits.nvidia.com/gpumem", **more: object) -> dict[str, Any]:
    return {"quotas": [named("q", hard={key: "8000"}, **more)]}


BROKEN: dict[str, tuple[dict[str, Any], str, Status, str, str]] = {
    "no DRA at all": (
        {"server": {"gitVersion": "v1.33.1"}},
        "kubernetes-version", FAIL, "v1.33.1", "upgrade",
    ),
    "one card a node": (
        {"server": {"gitVersion": "v1.34.4+k3s1"}},
        "kubernetes-version", WARN, "single one", "VERSIONS.md",
    ),
    "before the floor": (
        {"server": {"gitVersion": "v1.36.1"}},
        "kubernetes-version", WARN, "v1.36.1", "upgrade",
    ),
    "no version": (
        {"server": {"gitVersion": "main"}},
        "kubernetes-version", WARN, "no version", "who built it",
    ),
    "API off": ({"api": None}, "dra-api", FAIL, "is not served", "--runtime-config"),
    "API in part": (
        {"api": {"resources": [{"name": "resourceclaims"}]}},
        "dra-api", FAIL, "lacks deviceclasses, resourceclaimtemplates", "--runtime-config",
    ),
    "gate off": (
        {"capacity": template({"exactly": {}})},
        "consumable-capacity", FAIL, "drops", "--feature-gates=DRAConsumableCapacity=true",
    ),
    "capacity refused": (
        {"capacity": Probe(None, "is invalid")},
        "consumable-capacity", FAIL, "refused: is invalid", "what the message says",
    ),
    "no alternatives": (
        {"alternatives": Probe(None, "exactly one of")},
        "prioritized-list", WARN, "exactly one of", "DRAPrioritizedList=true",
    ),
    "alternatives refused for another reason": (
        {"alternatives": Probe(None, 'namespaces "tema" not found')},
        "prioritized-list", WARN, '"tema" not found', "--namespace NAME",
    ),
    "alternatives dropped": (
        {"alternatives": template({})},
        "prioritized-list", WARN, "drops alternatives", "DRAPrioritizedList=true",
    ),
    "throttled": (
        {"rate": Rate(150, 1.2, 13.5)},
        "controller-manager-rate", WARN, "11 pods", "--kube-api-qps=200 --kube-api-burst=400",
    ),
    "no class": ({"classes": []}, "device-class", FAIL, "no DeviceClass hami-core", "install"),
    "class of another driver": (
        {"classes": [device_class(driver="gpu.nvidia.com")]},
        "device-class", FAIL, "no selector that names", "kubectl delete deviceclass",
    ),
    "class without selectors": (
        {"classes": [{"metadata": {"name": device_class()["metadata"]["name"]}, "spec": {}}]},
        "device-class", FAIL, "no selector", "kubectl delete deviceclass",
    ),
    "our class goes past us": (
        {"classes": [device_class(extended="example.com/x")]},
        "extended-resource-name", WARN, "stands for example.com/x", '"extendedResourceName":null',
    ),
    "another class goes past us": (
        {"classes": [device_class(), device_class("gpu", "gpu", "nvidia.com/gpu")]},
        "extended-resource-name", WARN, "DeviceClass gpu stands", "patch deviceclass gpu",
    ),
    "no slices": ({"pools": []}, "resource-slices", FAIL, "no card of", "node agent"),
    "an empty slice": (
        {"pools": pools(count=0)}, "resource-slices", FAIL, "no card of", "node agent",
    ),
    "upstream's driver alone": (
        {"pools": [replace(pools()[0], driver="gpu.nvidia.com")]},
        "resource-slices", FAIL, "only of gpu.nvidia.com", "node agent",
    ),
    "no slots": (
        {"pools": pools(capacity={"memory": {"value": "1Gi"}, "cores": {"value": "100"}})},
        "driver-profile", FAIL, "n1 publish no slots", "capacities: {slots: ''}",
    ),
    "cards that cannot be shared": (
        {"pools": pools(allowMultipleAllocations=False)},
        "driver-profile", FAIL, "cannot be shared", "restart the node agent",
    ),
    "no sizes": ({"pools": []}, "card-sizes", WARN, "no size", "node agent"),
    "both on one node": (
        {"nodes": [node("n1", gpu="8"), node("n2", gpu="8")]},
        "device-plugin", FAIL, "n1 offer nvidia.com/gpu beside", "kubectl label node n1 gpu-",
    ),
    "the plugin elsewhere": (
        {"nodes": [node("n1", gpu="0"), node("n2", gpumem="8")]},
        "device-plugin", WARN, "n2 offer nvidia.com/gpumem", "kubectl label node n2 gpu-",
    ),
    "registered with HAMi": (
        {"nodes": [node("n1", {"hami.io/node-nvidia-register": "[]"})]},
        "hami-node-annotations", FAIL, "n1 carry hami.io/node-nvidia-register",
        "kubectl annotate node n1 hami.io/node-nvidia-register-",
    ),
    "HAMi's webhook": (
        {"mutating": [registration(), another("hami-webhook", "vgpu.hami.io")]},
        "hami-webhook", WARN, "hami-webhook", "delete mutatingwebhookconfiguration hami-webhook",
    ),
    "HAMi's scheduler": (
        {"schedulers": [{"metadata": {"namespace": "kube-system", "name": "hami-scheduler"}}]},
        "hami-scheduler", WARN, "kube-system/hami-scheduler",
        "kubectl -n kube-system scale deployment hami-scheduler --replicas=0",
    ),
    "not registered": (
        {"mutating": [another("x")]}, "webhook-registration", FAIL, "not registered", "install",
    ),
    "registered for another policy": (
        {"mutating": [registration(Policy(families=()))]},
        "webhook-scope", FAIL, "matchConditions of the registration", "--policy FILE",
    ),
    "other rules": (
        {"mutating": [registration(rules=[])]}, "webhook-scope", FAIL, "rules of", "install",
    ),
    "other selectors": (
        {"mutating": [registration(objectSelector={}, sideEffects="None")]},
        "webhook-scope", WARN, "objectSelector, sideEffects of", "install",
    ),
    "fails open, guarded": (
        {"mutating": [registration(failurePolicy="Ignore")]},
        "webhook-failure-policy", WARN, "the guard alone", '"value":"Fail"',
    ),
    "fails open": (
        {"mutating": [registration(failurePolicy="Ignore")], "guard": None},
        "webhook-failure-policy", FAIL, "go past it", '"value":"Fail"',
    ),
    "hasty": (
        {"mutating": [registration(timeoutSeconds=1)]},
        "webhook-timeout", WARN, "1 s", '"value":5',
    ),
    "patient": (
        {"mutating": [registration(timeoutSeconds=30)]},
        "webhook-timeout", WARN, "30 s", '"value":5',
    ),
    "others after us, once": (
        {"mutating": [registration(reinvocationPolicy="Never"), another("zz")]},
        "webhook-order", WARN, "zz change pods after ours, which is not", "install",
    ),
    "others after us, unguarded": (
        {"mutating": [registration(), another("zz", resource="*")], "guard": None},
        "webhook-order", WARN, "are not noticed", "install",
    ),
    "no guard": ({"guard": None}, "guard", FAIL, "there is no guard", "install"),
    "an unbound guard": ({"guard_binding": None}, "guard", FAIL, "no binding", "install"),
    "a guard that only warns": (
        {"guard_binding": {**BINDING, "spec": {**BINDING["spec"], "validationActions": ["Warn"]}}},
        "guard", FAIL, "does not deny", "install",
    ),
    "a guard bound to another": (
        {"guard_binding": {**BINDING, "spec": {**BINDING["spec"], "policyName": "x"}}},
        "guard", FAIL, "for another policy", "install",
    ),
    "a guard for another policy": (
        {"guard": OTHER_ADMISSION}, "guard", FAIL, "validations of the guard", "--policy FILE",
    ),
    "not called": (
        {"pod": Probe({"spec": {}})}, "webhook-answers", FAIL, "as it was", "webhook-registration",
    ),
    "not trusted": (
        {"pod": Probe(None, "failed calling webhook: tls: x509: unknown authority")},
        "webhook-answers", FAIL, "x509", "hami-dra-certs check",
    ),
    "not there": (
        {"pod": Probe(None, "failed calling webhook: connection refused")},
        "webhook-answers", FAIL, "connection refused", "kubectl -n hami-dra-system get pods",
    ),
    "guarded but not registered": (
        {"pod": Probe(None, "ValidatingAdmissionPolicy 'hami-dra-guard' denied it")},
        "webhook-answers", FAIL, "hami-dra-guard", "hami-dra install",
    ),
    "no room": (
        {"pod": Probe(None, "exceeded quota: q")},
        "webhook-answers", FAIL, "exceeded quota", "--namespace",
    ),
    "refused for another reason": (
        {"pod": Probe(None, "because")}, "webhook-answers", FAIL, "because", "what the message",
    ),
    "not trusted with claims": (
        {"claim": Probe(None, 'failed calling webhook "claims.hami-dra.io": tls: x509: unknown')},
        "claims-admitted", FAIL, "claims.hami-dra.io", "hami-dra-certs check",
    ),
    "not there for claims": (
        {"claim": Probe(None, "failed calling webhook: connection refused")},
        "claims-admitted", FAIL, "connection refused", "kubectl -n hami-dra-system get pods",
    ),
    "no bundle": (
        {"mutating": [registration(clientConfig={})]},
        "webhook-certificate", FAIL, "no caBundle", "--certificate-mode secret",
    ),
    "a bundle that is none": (
        {"mutating": [registration(clientConfig={"caBundle": "!"})]},
        "webhook-certificate", FAIL, "not base64", "--certificate-mode secret",
    ),
    "a bundle of something else": (
        {"mutating": [registration(clientConfig={"caBundle": "eA=="})]},
        "webhook-certificate", FAIL, "no readable certificate", "--certificate-mode secret",
    ),
    "an ended authority": (
        {"mutating": [registration(clientConfig=client_config(ENDED))]},
        "webhook-certificate", FAIL, "ended on 2026-10-26", "hami-dra-certs check",
    ),
    "an ending authority": (
        {"mutating": [registration(clientConfig=client_config(ENDING))]},
        "webhook-certificate", WARN, "authority ends on 2026-12-", "hami-dra-certs check",
    ),
    "an ended certificate": (
        {"served": Served(leaf(now=NOW - timedelta(days=40)), "", None)},
        "webhook-certificate", FAIL, "served certificate ended", "hami-dra-certs check",
    ),
    "an ending certificate": (
        {"served": Served(leaf(days=1), "", None)},
        "webhook-certificate", WARN, "served certificate ends", "logs deployment",
    ),
    "a certificate of another authority": (
        {"served": Served(leaf(), "self-signed certificate", None)},
        "webhook-certificate", FAIL, "does not fit", "hami-dra-certs check",
    ),
    "nobody to ask": (
        {"mutating": [], "served": Hidden("the webhook is not registered")},
        "webhook-health", FAIL, "not registered", "hami-dra install",
    ),
    "silent": ({"served": Served(b"", "", None)}, "webhook-health", FAIL, "not say", "logs"),
    "not ready": (
        {"served": Served(b"", "", {"missing": ["template cache"]})},
        "webhook-health", FAIL, "waiting for: template cache", "logs",
    ),
    "degraded": (
        {"served": Served(b"", "", {"degraded": {"template sweeper": "403"}})},
        "webhook-health", WARN, "template sweeper: 403", "logs",
    ),
    "a minimum": (
        limits(min=GPU), "limit-ranges", FAIL, "lr set a minimum", "-n team edit limitrange lr",
    ),
    "a ratio": (
        limits(maxLimitRequestRatio=GPU), "limit-ranges", FAIL, "or a ratio", "edit limitrange lr",
    ),
    "a default": (
        limits(default=GPU), "limit-ranges", WARN, "team/lr give every", "edit limitrange lr",
    ),
    "a default request": (
        limits(defaultRequest=GPU), "limit-ranges", WARN, "by default", "edit limitrange lr",
    ),
    "a maximum": (
        limits(max=GPU), "limit-ranges", WARN, "team/lr set a maximum", "ResourceQuota",
    ),
    "a maximum, as the API server completes it": (
        limits(max=GPU, default=GPU), "limit-ranges", WARN, "by default", "and the maximum",
    ),
    "a toothless quota": (
        {
            "quotas": [named("q", hard={"limits.nvidia.com/gpumem": "8000"}), named("cpu")],
            "validating": None,
        },
        "resource-quotas", FAIL, "team/q name converted resources", "hami-dra install",
    ),
    "claims are told to nobody": (
        {**quota(), "validating": {"metadata": {}}},
        "resource-quotas", FAIL, "nothing enforces them", "hami-dra install",
    ),
    "other claims are told": (
        {**quota(), "validating": claims_registration(Policy(families=()))},
        "resource-quotas", FAIL, "matchConditions of the registration", "--policy FILE",
    ),
    "claims of some namespaces are told": (
        {**quota(), "validating": claims_registration(namespaceSelector={}, rules=[])},
        "resource-quotas", FAIL, "namespaceSelector, rules of the registration", "install",
    ),
    "claims go past a webhook that is away": (
        {**quota(), "validating": claims_registration(failurePolicy="Ignore")},
        "resource-quotas", WARN, "not while it is away", '"value":"Fail"',
    ),
    "a key that no claim is measured by": (
        quota("limits.nvidia.com/gpumem-percentage"),
        "resource-quotas", WARN, "q are not held as they are written: limits.nvidia.com/gpumem-p",
        "-n team edit resourcequota q",
    ),
    "a quota for a class of work": (
        quota(scopes=["NotTerminating"]),
        "resource-quotas", WARN, "claims have no scope (NotTerminating)", "QUOTAS.md",
    ),
}  # fmt: skip
