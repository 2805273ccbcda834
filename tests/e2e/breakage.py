"""Ways to break a cluster for a while, and what a preflight must say meanwhile."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from certs.authority import create_authority
from hami_dra.lab import webhook
from hami_dra.lab.ports import LOOPBACK
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.migration.registration import GUARD_NAME, NAME
from tests.e2e.world import World

CONFIGURATION: Final = f"mutatingwebhookconfiguration/{NAME}"
CONFIGURATION_FOR_CLAIMS: Final = f"validatingwebhookconfiguration/{NAME}"


@contextmanager
def without_registration(world: World) -> Iterator[None]:
    webhook.unregister(world.scene.api)
    try:
        yield
    finally:
        webhook.register(world.scene.api, world.scene.webhook)
        webhook.await_registered(world.scene.api, world.namespace)


@contextmanager
def with_registration(
    world: World, configuration: str = CONFIGURATION, **changed: object
) -> Iterator[None]:
    """Have other fields in our entry of the registration."""
    patch = [
        {"op": "add", "path": f"/webhooks/0/{key.replace('__', '/')}", "value": value}
        for key, value in changed.items()
    ]
    world.kubectl("patch", configuration, "--type=json", "-p", json.dumps(patch))
    try:
        yield
    finally:
        with without_registration(world):
            pass


@contextmanager
def without_the_process(world: World) -> Iterator[None]:
    world.scene.cluster.stop_process(world.scene.webhook.process)
    try:
        yield
    finally:
        world.scene.restart_webhook()


@contextmanager
def with_objects(world: World, *manifests: Json) -> Iterator[None]:
    world.apply(*manifests)
    try:
        yield
    finally:
        world.kubectl("delete", "-f", "-", stdin="\n---\n".join(map(json.dumps, manifests)))


@contextmanager
def without_object(world: World, resource: str, name: str) -> Iterator[None]:
    """Delete an object of the whole cluster and put it back."""
    saved = world.scene.api.get(resource, name)
    world.scene.api.delete(resource, name)
    for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
        saved["metadata"].pop(field, None)
    try:
        yield
    finally:
        world.scene.api.create(resource, saved)


@contextmanager
def with_patch(world: World, target: str, patch: Json, back: Json, *more: str) -> Iterator[None]:
    world.kubectl("patch", target, "--type=merge", *more, "-p", json.dumps(patch))
    try:
        yield
    finally:
        world.kubectl("patch", target, "--type=merge", *more, "-p", json.dumps(back))


@contextmanager
def on_our_node(world: World, patch: Json, back: Json, *more: str) -> Iterator[None]:
    [name] = world.nodes
    with with_patch(world, f"node/{name}", patch, back, *more):
        yield


@contextmanager
def with_a_quota_that_nothing_enforces(world: World) -> Iterator[None]:
    """Have a legacy quota, and nobody who is asked about claims."""
    claims = without_object(world, resource="validatingwebhookconfigurations", name=NAME)
    with claims, with_objects(world, QUOTA):
        yield


@contextmanager
def without_cards(world: World) -> Iterator[None]:
    [name] = world.nodes
    slice_name = f"00000-{DRIVER}-{name}"
    with without_object(world, "resourceslices", slice_name):
        yield


@contextmanager
def without_slots(world: World) -> Iterator[None]:
    """Publish what upstream's driver does."""
    [name] = world.nodes
    path = f"/apis/resource.k8s.io/v1/resourceslices/00000-{DRIVER}-{name}"
    patch = [{"op": "remove", "path": "/spec/devices/0/capacity/slots"}]
    world.kubectl("patch", f"resourceslice/{path.rpartition('/')[2]}", "--type=json", "-p",
                  json.dumps(patch))  # fmt: skip
    yield


def another_webhook(name: str, hook: str) -> Json:
    """Write a registration that is called for no pod at all."""
    never = {"matchLabels": {"hami-dra.io/nowhere": "yes"}}
    entry = {
        "name": hook,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://{LOOPBACK}:1/"},
        "sideEffects": "None",
        "namespaceSelector": never,
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [entry],
    }


def other_bundle() -> str:
    now = datetime.now(UTC)
    other = create_authority("other", now=now, lifetime=timedelta(days=30))
    return base64.b64encode(other.certificate_pem).decode()


def limit_range(**limits: object) -> Json:
    spec = {"limits": [{"type": "Container", **limits}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "lr"}, "spec": spec}


SCHEDULER: Json = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "hami-scheduler",
        "labels": {"app.kubernetes.io/component": "hami-scheduler"},
    },
    "spec": {
        "selector": {"matchLabels": {"app": "s"}},
        "template": {
            "metadata": {"labels": {"app": "s"}},
            "spec": {
                "schedulerName": "nobody",
                "containers": [{"name": "s", "image": "none"}],
            },
        },
    },
}
QUOTA: Json = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q"},
    "spec": {"hard": {"limits.nvidia.com/gpumem": "8000"}},
}
GPU = {"nvidia.com/gpu": "8"}
REGISTER = "hami.io/node-nvidia-register"
GOES_PAST_US = "a class that goes past us"

BROKEN: dict[
    str, tuple[Callable[[World], AbstractContextManager[None]], dict[str, tuple[str, str]]]
] = {
    "no registration": (
        without_registration,
        {
            "webhook-registration": ("fail", "hami-dra install"),
            "webhook-answers": ("fail", "hami-dra install"),
        },
    ),
    "fails open": (
        partial(with_registration, failurePolicy="Ignore"),
        {"webhook-failure-policy": ("warn", '"value":"Fail"')},
    ),
    "another policy's conditions": (
        partial(with_registration, matchConditions=[{"name": "never", "expression": "false"}]),
        {
            "webhook-scope": ("fail", "--policy FILE"),
            "webhook-answers": ("fail", "hami-dra install"),
        },
    ),
    "another authority": (
        partial(with_registration, clientConfig__caBundle=other_bundle()),
        {
            "webhook-certificate": ("fail", "hami-dra-certs check"),
            "webhook-answers": ("fail", "hami-dra-certs check"),
        },
    ),
    "another authority for claims": (
        partial(
            with_registration,
            configuration=CONFIGURATION_FOR_CLAIMS,
            clientConfig__caBundle=other_bundle(),
        ),
        {
            "webhook-answers": ("pass", ""),
            "claims-admitted": ("fail", "hami-dra-certs check"),
        },
    ),
    "nobody there": (
        without_the_process,
        {
            "claims-admitted": ("fail", "kubectl -n hami-dra-system get pods"),
            "webhook-answers": ("fail", "kubectl -n hami-dra-system get pods"),
            "webhook-health": ("unknown", ""),
        },
    ),
    "no guard": (
        partial(without_object, resource="validatingadmissionpolicybindings", name=GUARD_NAME),
        {"guard": ("fail", "hami-dra install")},
    ),
    "no class": (
        partial(without_object, resource="deviceclasses", name=DRIVER),
        {"device-class": ("fail", "hami-dra install")},
    ),
    GOES_PAST_US: (
        partial(
            with_patch,
            target=f"deviceclass/{DRIVER}",
            patch={"spec": {"extendedResourceName": "nvidia.com/gpu"}},
            back={"spec": {"extendedResourceName": None}},
        ),
        {"extended-resource-name": ("warn", "kubectl patch deviceclass")},
    ),
    "no cards": (without_cards, {"resource-slices": ("fail", "node agent")}),
    "upstream's driver": (without_slots, {"driver-profile": ("fail", "slots: ''")}),
    "HAMi's device plugin": (
        lambda world: on_our_node(
            world,
            {"status": {"allocatable": GPU, "capacity": GPU}},
            {"status": {"allocatable": {"nvidia.com/gpu": None}}},
            "--subresource=status",
        ),
        {"device-plugin": ("fail", "kubectl label node")},
    ),
    "HAMi's registration": (
        lambda world: on_our_node(
            world,
            {"metadata": {"annotations": {REGISTER: "[]"}}},
            {"metadata": {"annotations": {REGISTER: None}}},
        ),
        {"hami-node-annotations": ("fail", "kubectl annotate node")},
    ),
    "HAMi's webhook": (
        lambda world: with_objects(world, another_webhook("hami-webhook", "vgpu.hami.io")),
        {"hami-webhook": ("warn", "kubectl delete mutatingwebhookconfiguration hami-webhook")},
    ),
    "HAMi's scheduler": (
        lambda world: with_objects(world, SCHEDULER),
        {"hami-scheduler": ("warn", "scale deployment hami-scheduler --replicas=0")},
    ),
    "a maximum": (
        lambda world: with_objects(world, limit_range(max=GPU)),
        {"limit-ranges": ("warn", "edit limitrange lr")},
    ),
    "a minimum": (
        lambda world: with_objects(world, limit_range(min={"nvidia.com/gpu": "1"})),
        {"limit-ranges": ("fail", "edit limitrange lr")},
    ),
    "a quota that nothing enforces": (
        with_a_quota_that_nothing_enforces,
        {"resource-quotas": ("fail", "hami-dra install")},
    ),
}
