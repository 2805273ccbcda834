"""Each fact passes on a good cluster, and on one broken in its way says so and what to do."""

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from certs.authority import create_authority
from hami_dra.migration import Family, Policy
from hami_dra.migration.registration import guard
from hami_dra.preflight.checks import CHECKS
from hami_dra.preflight.evidence import Evidence, Hidden, Probe, Rate, Served
from hami_dra.preflight.fact import Check, Fact, Status, judge_each, names
from tests.hami_dra.preflight.evidence import (
    NOW,
    POLICY,
    another,
    client_config,
    device_class,
    good,
    leaf,
    named,
    node,
    pools,
    registration,
    template,
)

PAGE = Path(__file__).parents[3] / ".github" / "PREFLIGHT.md"

WARN, FAIL = Status.WARN, Status.FAIL
OLD = NOW - timedelta(days=400)
ENDED = create_authority("ended", now=OLD, lifetime=timedelta(days=365))
ENDING = create_authority("ending", now=OLD, lifetime=timedelta(days=405))
ADMISSION, BINDING = guard(POLICY)
OTHER_ADMISSION, _ = guard(Policy(families=()))
MANY_SIZES = [
    pool for profile in ("l4-24g", "a100-80g", "h100-80g") for pool in pools(profile, node=profile)
]


def facts(evidence: Evidence, policy: Policy = POLICY) -> dict[str, Fact]:
    return {fact.id: fact for fact in judge_each(CHECKS, evidence, policy)}


def test_a_good_cluster_passes_everything() -> None:
    found = facts(good())

    assert {fact.id: fact.found for fact in found.values() if fact.status is not Status.PASS} == {}
    assert all(not fact.fix and not fact.expected for fact in found.values())


def limits(**sections: object) -> dict[str, Any]:
    return {"limit_ranges": [named("lr", limits=[sections])]}


GPU = {"nvidia.com/gpu": "2"}

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
        "consumable-capacity", FAIL, "refused: is invalid", "--feature-gates",
    ),
    "no alternatives": (
        {"alternatives": Probe(None, "exactly one of")},
        "prioritized-list", WARN, "exactly one of", "DRAPrioritizedList=true",
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
    "a default": (
        limits(default=GPU), "limit-ranges", WARN, "team/lr give every", "edit limitrange lr",
    ),
    "a default request": (
        limits(defaultRequest=GPU), "limit-ranges", WARN, "by default", "edit limitrange lr",
    ),
    "a maximum": (
        limits(max=GPU), "limit-ranges", WARN, "team/lr set a maximum", "ResourceQuota",
    ),
    "a toothless quota": (
        {
            "quotas": [named("q", hard={"limits.nvidia.com/gpumem": "8000"}), named("cpu")],
            "validating": None,
        },
        "resource-quotas", FAIL, "team/q name converted resources", "hami-dra install",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_cluster_is_told_what_to_do(case: str) -> None:
    changed, id_, status, found, fix = BROKEN[case]

    fact = facts(good(**changed))[id_]

    assert fact.status is status
    assert found in fact.found
    assert fix in fact.fix
    assert fact.expected


def test_every_fact_is_broken_by_a_case() -> None:
    assert {id_ for _, id_, *_ in BROKEN.values()} == {check.id for check in CHECKS}


def test_more_sizes_than_a_claim_can_list_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hami_dra.preflight.devices.MOST_SIZES", 1)

    fact = facts(good(pools=MANY_SIZES))["card-sizes"]

    assert fact.status is WARN
    assert fact.found.startswith("3 sizes: 23034 MiB, ")
    assert "MiB instead of percent" in fact.fix


def test_upstreams_driver_passes_with_a_policy_that_says_so() -> None:
    family = Family()
    without = family.model_copy(
        update={"capacities": family.capacities.model_copy(update={"slots": ""})}
    )
    policy = Policy(families=(without,))
    shared = {"memory": {"value": "1Gi"}, "cores": {"value": "100"}}

    upstream = facts(good(pools=pools(capacity=shared)), policy)["driver-profile"]
    ours = facts(good(), policy)["driver-profile"]

    assert (upstream.status, upstream.found) == (Status.PASS, "profile hami")
    assert (ours.status, "does not use it" in ours.found) == (WARN, True)


def test_slices_of_an_older_generation_do_not_count() -> None:
    [new], [old] = pools(), pools(allowMultipleAllocations=False)
    older = replace(old, sizes=replace(old.sizes, generation=0))

    assert facts(good(pools=[older, new]))["driver-profile"].status is Status.PASS


def test_quotas_with_the_webhook_and_webhooks_with_the_guard_pass() -> None:
    quotas = [named("q", hard={"requests.nvidia.com/gpu": "8"})]
    found = facts(good(quotas=quotas, mutating=[registration(), another("zz")]))

    assert found["resource-quotas"].found == "team/q, enforced by the webhook"
    assert found["webhook-order"].found == "zz come after ours, which is called again"


def test_a_service_is_judged_by_what_the_api_server_says_of_it() -> None:
    fact = facts(good(served=Hidden("403")))["webhook-certificate"]

    assert fact.status is Status.PASS
    assert "webhook-answers tells" in fact.found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_what_cannot_be_read_is_never_a_pass(check: Check) -> None:
    [fact] = judge_each([check], Evidence(now=NOW), POLICY)

    assert fact.status is Status.UNKNOWN
    assert "not read" in fact.found


def test_a_hidden_part_leaves_the_other_facts_alone() -> None:
    found = facts(good(nodes=Hidden("403 Forbidden: nodes")))

    unknown = {id_: f.found for id_, f in found.items() if f.status is Status.UNKNOWN}
    assert unknown == {
        "device-plugin": "403 Forbidden: nodes",
        "hami-node-annotations": "403 Forbidden: nodes",
    }


def test_what_the_api_server_adds_by_default_makes_no_difference() -> None:
    stored = {
        **ADMISSION,
        "spec": {
            **ADMISSION["spec"],
            "validations": [{**ADMISSION["spec"]["validations"][0], "reason": "Invalid"}],
        },
    }

    assert facts(good(guard=stored))["guard"].status is Status.PASS


def test_names_are_not_listed_by_the_thousand() -> None:
    assert names(f"n{number}" for number in range(9)) == "n0, n1, n2, n3, n4 and 4 more"
    assert names(["b", "a", "b"]) == "a, b"


def test_every_fact_is_on_its_page_and_nothing_else() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)

    assert rows == [check.id for check in CHECKS]
