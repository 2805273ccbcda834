"""The webhook's registration, generated from Policy, so that the API server and we agree on a pod.

A pod without legacy keys must never reach the webhook (ruling 26): then our outage is nobody's but
the GPU users'.
"""

import json
from typing import Final

from hami_dra.migration.excerpt import MIRROR_ANNOTATION, OPT_OUT_LABEL
from hami_dra.migration.json import Json
from hami_dra.migration.pod import OPT_OUT_VALUE
from hami_dra.migration.policy import Policy
from hami_dra.migration.record import ANNOTATION

NAME: Final = "hami-dra-webhook"
"""Name of the configuration, the Service, the ServiceAccount and the roles of the webhook."""

GUARD_NAME: Final = "hami-dra-guard"
"""Name of the guard and its binding."""

SYSTEM_NAMESPACE: Final = "hami-dra-system"
"""Where our own pods run; excluded, so that we never wait for ourselves."""

EXCLUDED_NAMESPACES: Final = ("kube-system", SYSTEM_NAMESPACE)
"""Where pods are left alone whatever they say."""

_TIMEOUT_S: Final = 5  # a first template costs one API write, well under a second

_OPTED_IN: Final[Json] = {"key": OPT_OUT_LABEL, "operator": "NotIn", "values": [OPT_OUT_VALUE]}


def match_conditions(policy: Policy) -> list[Json]:
    """Return CEL conditions that only pods with something to convert satisfy."""
    mirror = f'!("{MIRROR_ANNOTATION}" in object.metadata.?annotations.orValue({{}}))'
    return [
        {"name": "asks-for-legacy-gpu-resources", "expression": _asks(policy)},
        {"name": "is-no-mirror-pod", "expression": mirror},
    ]


def webhook_configuration(policy: Policy, client_config: Json) -> Json:
    """Return the MutatingWebhookConfiguration.

    Args:
        policy: names the resources that make a pod ours.
        client_config: `url` or `service`, and `caBundle`, as the API takes them.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": NAME}},
        "webhooks": [
            {
                "name": "pods.hami-dra.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client_config,
                "failurePolicy": "Fail",
                "matchConditions": match_conditions(policy),
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": _TIMEOUT_S,
                **_where(rules="rules"),
            },
        ],
    }


def claim_conditions(policy: Policy) -> list[Json]:
    """Return CEL conditions that only claims for our DeviceClasses satisfy, whoever writes them."""
    named = f'.?deviceClassName.orValue("") in {json.dumps(sorted(policy.device_classes))}'
    expression = (
        "object.spec.?devices.?requests.orValue([]).exists(r,"
        f" r.?exactly{named} || r.?firstAvailable.orValue([]).exists(each, each{named}))"
    )
    return [{"name": "asks-for-a-device-of-ours", "expression": expression}]


def claim_webhook_configuration(policy: Policy, client_config: Json) -> Json:
    """Return the ValidatingWebhookConfiguration: claims are held to legacy quotas (ruling 30).

    It has no objectSelector, because whoever writes a claim writes its labels too, and would write
    the one that opts out of the quota.

    Args:
        policy: names the DeviceClasses that make a claim ours.
        client_config: `url` or `service`, and `caBundle`; its path is `/validate`.
    """
    claims = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"]}
    where = {"resources": ["resourceclaims"], "scope": "Namespaced", "operations": ["CREATE"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/name": NAME}},
        "webhooks": [
            {
                "name": "claims.hami-dra.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client_config,
                "failurePolicy": "Fail",
                "matchConditions": claim_conditions(policy),
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": _TIMEOUT_S,
                "namespaceSelector": _namespaces(),
                "matchPolicy": "Equivalent",
                "rules": [{**claims, **where}],
            },
        ],
    }


def guard(policy: Policy) -> tuple[Json, Json]:
    """Return a ValidatingAdmissionPolicy and its binding: nothing slips through half-migrated.

    It runs inside the API server and needs no webhook (ruling 27). It catches what another webhook
    puts into a pod after ours, which is not called a first time in the second round, and every pod
    that asks for a card while our webhook is not registered.
    """
    conditions = match_conditions(policy)
    labels = {"app.kubernetes.io/name": NAME}
    message = (
        "the pod still asks for GPU resources that hami-dra converts: its webhook is not"
        " registered, or another webhook added them after it. Register it before that one, or"
        f" leave the pod alone with the label {OPT_OUT_LABEL}: {OPT_OUT_VALUE} on it or its"
        " namespace"
    )
    admission: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": GUARD_NAME, "labels": labels},
        "spec": {
            "failurePolicy": "Fail",
            "matchConditions": conditions[1:],
            "matchConstraints": _where(rules="resourceRules"),
            "validations": [
                {"expression": f"!({conditions[0]['expression']})", "message": message}
            ],
        },
    }
    binding: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": GUARD_NAME, "labels": labels},
        "spec": {"policyName": GUARD_NAME, "validationActions": ["Deny"]},
    }
    return admission, binding


def _asks(policy: Policy) -> str:
    """Return the CEL condition "a container asks for a resource that we convert".

    Families without a DeviceClass are left alone, so their pods must not depend on us either.
    No card asks for nothing. No memory or no compute without a count asks for a card all the same
    (rulings 3 and 8), unless our record stands beside it: then it is the zero that a LimitRange
    makes us write (ruling 20).
    """
    managed = json.dumps(sorted(policy.converted_names))
    converted = (family for family in policy.families if family.device_class)
    shares = json.dumps(sorted({name for family in converted for name in family.share_names}))
    recorded = f'"{ANNOTATION}" in object.metadata.?annotations.orValue({{}})'
    return (
        "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,"
        " [c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(amounts,"
        f" amounts.exists(name, name in {managed} &&"
        f' (amounts[name] != "0" || name in {shares} && !({recorded})))))'
    )


def _where(*, rules: str) -> Json:
    """Return the pods that webhook and guard look at, under the name that each has for rules."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "Namespaced"}
    return {
        "namespaceSelector": _namespaces(),
        "objectSelector": {"matchExpressions": [_OPTED_IN]},
        # The API's default, written so that tools which compare find no difference.
        "matchPolicy": "Equivalent",
        rules: [{**pods, "operations": ["CREATE"]}],
    }


def _namespaces() -> Json:
    """Return the namespaces that are not left alone."""
    excluded = list(EXCLUDED_NAMESPACES)
    elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}
    return {"matchExpressions": [elsewhere, _OPTED_IN]}
