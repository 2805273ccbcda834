"""The reviews that are sent: as the API server writes them, four kilobytes, of one known shape.

Marks in angle brackets are replaced by the load generator, by other text in every review.
"""

import json
from typing import Final

from hami_dra.migration import Json

UID: Final = "<UID>"
"""Replaced by a UUID."""

ID: Final = "<ID>"
"""Replaced by sixteen hexadecimal digits."""

NAMESPACE: Final = "default"
"""Where the pods are created."""

_TOKEN: Final = f"kube-api-access-{ID}"
_TIME: Final = "2026-11-30T08:00:00Z"
_AMOUNTS: Final = {
    "cpu": "4",
    "memory": "32Gi",
    "nvidia.com/gpu": "1",
    "nvidia.com/gpucores": "30",
    "nvidia.com/gpumem": "8k",
}
_VARIABLES: Final = (
    *("MODEL_NAME", "MODEL_PATH", "MAX_BATCH_SIZE", "MAX_SEQUENCE_LENGTH", "TENSOR_PARALLEL"),
    *("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME", "LOG_LEVEL", "HF_HOME", "NCCL_DEBUG"),
)


def different() -> bytes:
    """Return a review whose pod differs from every other: name, owner's hash, checksum, a value."""
    return _body(_review(_pod(unique=ID)))


def replicas() -> bytes:
    """Return a review of one ReplicaSet's pods.

    They differ in the request's uid and in the name of the volume with their token, which the API
    server draws for each pod before it asks webhooks.
    """
    return _body(_review(_pod(unique="5db6446797a0b1c2")))


def _body(review: Json) -> bytes:
    """Write it as Go does: without spaces, `kind` first."""
    return json.dumps(review, separators=(",", ":")).encode()


def _review(pod: Json) -> Json:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    account = "system:serviceaccount:kube-system:replicaset-controller"
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID,
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "namespace": NAMESPACE,
            "operation": "CREATE",
            "userInfo": {
                "username": account,
                "uid": "5d0d5bd3-4a4b-4c35-a9c0-0a3ba3e2e2a5",
                "groups": [
                    "system:serviceaccounts",
                    "system:serviceaccounts:kube-system",
                    "system:authenticated",
                ],
                "extra": {
                    "authentication.kubernetes.io/credential-id": [
                        "JTI=0f5d2c35-6d8e-4a07-8a5c-9b2f3f6f4b11"
                    ]
                },
            },
            "object": pod,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def _pod(unique: str) -> Json:
    volumes = [
        {"name": "models", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
        {"name": _TOKEN, "projected": _projected()},
    ]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "generateName": f"inference-{unique}-",
            "namespace": NAMESPACE,
            "labels": {"app": "inference", "pod-template-hash": unique},
            "annotations": {"checksum/config": unique * 4},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": f"inference-{unique}",
                    "uid": "a0a2e7a1-2f6c-4b41-9e0c-0d9f6a0c4f55",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [_managed()],
        },
        "spec": {
            "volumes": volumes,
            "containers": [_container(unique)],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "inference",
            "serviceAccount": "inference",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": _tolerations(),
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    }


def _container(unique: str) -> Json:
    variables = [{"name": name, "value": f"value-of-{name.lower()}"} for name in _VARIABLES]
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    return {
        "name": "server",
        "image": "registry.example/inference:1.0",
        "args": ["--port=8080", "--model=/models/current"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [*variables, {"name": "REVISION", "value": unique}],
        "resources": {"limits": dict(_AMOUNTS), "requests": dict(_AMOUNTS)},
        "volumeMounts": [
            {"name": "models", "readOnly": True, "mountPath": "/models"},
            {"name": _TOKEN, "readOnly": True, "mountPath": account},
        ],
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False},
    }


def _projected() -> Json:
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    bundle = {
        "configMap": {
            "name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        }
    }
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    downward = {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}}
    return {"sources": [token, bundle, downward], "defaultMode": 420}


def _tolerations() -> list[Json]:
    return [
        {
            "key": f"node.kubernetes.io/{name}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for name in ("not-ready", "unreachable")
    ]


def _managed() -> Json:
    """Say who owns which fields; the API server adds this before it asks webhooks."""
    owner: Json = {".": {}, 'k:{"uid":"a0a2e7a1-2f6c-4b41-9e0c-0d9f6a0c4f55"}': {}}
    metadata = {"f:generateName": {}, "f:labels": {"f:app": {}}, "f:ownerReferences": owner}
    container: Json = {f"f:{name}": {} for name in ("args", "env", "image", "name", "resources")}
    spec = {
        "f:containers": {'k:{"name":"server"}': container},
        "f:serviceAccountName": {},
        "f:volumes": {'k:{"name":"models"}': {"f:persistentVolumeClaim": {}}},
    }
    return {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "v1",
        "time": _TIME,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": metadata, "f:spec": spec},
    }
