"""The webhook's registration, generated from Policy, so that the API server and we agree on a pod.

A pod without legacy keys must never reach the webhook (ruling 26): then our outage is nobody's but
the GPU users'.
"""

import json
from typing import Final

from hami_dra.migration.json import Json
from hami_dra.migration.pod import MIRROR_ANNOTATION, OPT_OUT_LABEL, OPT_OUT_VALUE
from hami_dra.migration.policy import Policy

NAME: Final = "hami-dra-webhook"
"""Name of the configuration, the Service, the ServiceAccount and the roles of the webhook."""

SYSTEM_NAMESPACE: Final = "hami-dra-system"
"""Where our own pods run; excluded, so that we never wait for ourselves."""

_TIMEOUT_S: Final = 5  # a first template costs one API write, well under a second


def match_conditions(policy: Policy) -> list[Json]:
    """Return CEL conditions that only pods with something to convert satisfy.

    Families without a DeviceClass are left alone, so their pods must not depend on us either.
    Zero does not count: a LimitRange makes us write it (ruling 20), and it asks for nothing.
    """
    converted = (family for family in policy.families if family.device_class)
    names = sorted({name for family in converted for name in family.managed_names})
    asks = (
        "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c,"
        " [c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(amounts,"
        f' amounts.exists(name, name in {json.dumps(names)} && amounts[name] != "0")))'
    )
    mirror = f'!("{MIRROR_ANNOTATION}" in object.metadata.?annotations.orValue({{}}))'
    return [
        {"name": "asks-for-legacy-gpu-resources", "expression": asks},
        {"name": "is-no-mirror-pod", "expression": mirror},
    ]


def webhook_configuration(policy: Policy, client_config: Json) -> Json:
    """Return the MutatingWebhookConfiguration.

    Args:
        policy: names the resources that make a pod ours.
        client_config: `url` or `service`, and `caBundle`, as the API takes them.
    """
    opted_in = {"key": OPT_OUT_LABEL, "operator": "NotIn", "values": [OPT_OUT_VALUE]}
    excluded = ["kube-system", SYSTEM_NAMESPACE]
    elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "Namespaced"}
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
                "namespaceSelector": {"matchExpressions": [elsewhere, opted_in]},
                "objectSelector": {"matchExpressions": [opted_in]},
                "reinvocationPolicy": "IfNeeded",
                "rules": [{**pods, "operations": ["CREATE"]}],
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": _TIMEOUT_S,
            },
        ],
    }
