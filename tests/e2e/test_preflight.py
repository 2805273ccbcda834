"""A preflight of a real cluster: all is well, and broken one way each it says what to do."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from certs.authority import create_authority
from hami_dra.cli.app import app
from hami_dra.lab import build, controlplane, pki, webhook
from hami_dra.lab.controlplane import API_SERVER, CONTROLLER_MANAGER, Ports
from hami_dra.lab.layout import Layout
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.family import DRIVER
from hami_dra.migration.registration import GUARD_NAME, NAME
from tests.e2e.world import World

pytestmark = pytest.mark.cluster

PROGRAM = Path(sys.executable).with_name("hami-dra")
CONFIGURATION = f"mutatingwebhookconfiguration/{NAME}"


def preflight(
    world: World, *arguments: str, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    chosen = str(kubeconfig or world.scene.cluster.kubeconfig)
    where = ("--kubeconfig", chosen, "--namespace", world.namespace)
    return subprocess.run(
        [PROGRAM, "preflight", *where, *arguments], capture_output=True, text=True, check=False
    )


def facts(world: World, *arguments: str, kubeconfig: Path | None = None) -> dict[str, Json]:
    """Return the facts by id; the exit code tells whether one fails."""
    chosen = str(kubeconfig or world.scene.cluster.kubeconfig)
    where = ("--kubeconfig", chosen, "--namespace", world.namespace)
    done = CliRunner().invoke(app, ["preflight", *where, "-o", "json", *arguments])
    assert done.exit_code in (0, 3), done.stderr
    found = {fact["id"]: fact for fact in json.loads(done.stdout)}
    failing = [fact for fact in found.values() if fact["status"] == "fail"]
    assert done.exit_code == (3 if failing else 0)
    return found


@pytest.fixture
def ready(world: World) -> World:
    """Have a cluster with cards."""
    world.add_node("gpu", l4_24g=1)
    world.await_card_sizes(23034)
    return world


def test_a_good_cluster_passes_everything(ready: World) -> None:
    old = ready.scene.cluster.version < "1.36"

    found = facts(ready)

    not_passed = {id_: fact for id_, fact in found.items() if fact["status"] != "pass"}
    assert set(not_passed) == ({"kubernetes-version"} if old else set())
    assert "controller-manager-rate" not in found
    table = preflight(ready)
    assert "\x1b" not in table.stdout
    assert "pass      driver-profile" in table.stdout
    assert "profile hami-dra" in table.stdout
    assert "ready: " in table.stderr


@contextmanager
def without_registration(world: World) -> Iterator[None]:
    webhook.unregister(world.scene.api)
    try:
        yield
    finally:
        webhook.register(world.scene.api, world.scene.webhook)
        webhook.await_registered(world.scene.api, world.namespace)


@contextmanager
def with_registration(world: World, **changed: object) -> Iterator[None]:
    """Have other fields in our entry of the registration."""
    patch = [
        {"op": "add", "path": f"/webhooks/0/{key.replace('__', '/')}", "value": value}
        for key, value in changed.items()
    ]
    world.kubectl("patch", CONFIGURATION, "--type=json", "-p", json.dumps(patch))
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
        "replicas": 0,
        "selector": {"matchLabels": {"app": "s"}},
        "template": {
            "metadata": {"labels": {"app": "s"}},
            "spec": {"containers": [{"name": "s", "image": "none"}]},
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

BROKEN: dict[str, tuple[Callable[[World], object], dict[str, tuple[str, str]]]] = {
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
    "nobody there": (
        without_the_process,
        {
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
        lambda world: with_objects(world, QUOTA),
        {"resource-quotas": ("fail", "hami-dra install")},
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_cluster_broken_one_way_is_told_what_to_do(ready: World, case: str) -> None:
    broken, expected = BROKEN[case]
    if case == GOES_PAST_US and ready.scene.cluster.version < "1.36":
        # The field's gate is off there, so the API server drops it.
        expected = {"extended-resource-name": ("pass", "")}

    def as_expected() -> bool:
        """The API server heeds a change of its registrations only after a moment."""
        found = facts(ready)
        return {
            id_: (found[id_]["status"], fix if fix in found[id_]["fix"] else found[id_])
            for id_, (_, fix) in expected.items()
        } == expected

    with broken(ready):  # type: ignore[attr-defined]  # a table of context managers
        until(as_expected, what=f"preflight says {expected}", timeout_s=120)


def test_a_gate_that_is_off_is_noticed(ready: World) -> None:
    """Another API server on the same etcd, which drops what makes a claim a share."""
    cluster = ready.scene.cluster
    layout, assets = Layout(cluster.directory), build.assets(cluster.version)
    [port] = free_ports(1)
    arguments = controlplane.api_server_arguments(layout, Ports(port, 0, 0), cluster.version)
    argv = [str(assets.directory / API_SERVER), *arguments]
    process = cluster.start_process(
        "gate-off", [*argv, "--feature-gates=DRAConsumableCapacity=false"], grace_s=0
    )
    try:
        config = YAML(typ="safe").load(cluster.kubeconfig)
        config["clusters"][0]["cluster"]["server"] = f"https://{LOOPBACK}:{port}"
        elsewhere = cluster.directory / "gate-off.kubeconfig"
        pki.write_kubeconfig(elsewhere, config)

        def answered() -> bool:
            process.check()
            return preflight(ready, kubeconfig=elsewhere).returncode != 1

        until(answered, what="the other API server answers", timeout_s=90)
        found = facts(ready, kubeconfig=elsewhere)
    finally:
        process.stop()

    assert found["consumable-capacity"]["status"] == "fail"
    assert "--feature-gates=DRAConsumableCapacity=true" in found["consumable-capacity"]["fix"]
    assert found["prioritized-list"]["status"] == "pass"


def test_what_an_account_may_not_read_is_unknown_and_said_so(ready: World) -> None:
    cluster = ready.scene.cluster
    ready.kubectl("create", "serviceaccount", "nobody")
    token = ready.kubectl("create", "token", "nobody").stdout.strip()
    config = pki.kubeconfig(cluster.server, cluster.ca_pem, token)
    account = cluster.directory / "nobody.kubeconfig"
    pki.write_kubeconfig(account, config)

    found = facts(ready, kubeconfig=account)

    readable = {id_ for id_, fact in found.items() if fact["status"] != "unknown"}
    assert readable == {"kubernetes-version", "dra-api"}
    assert "cannot list resource" in found["device-class"]["found"]
    said = preflight(ready, kubeconfig=account).stderr
    assert "nothing fails, but not everything could be read" in said


def test_stock_limits_of_the_controller_manager_are_measured(ready: World) -> None:
    """20 calls a second with a burst of 30: two calls a pod; afterwards nothing is left."""
    cluster = ready.scene.cluster
    layout, assets = Layout(cluster.directory), build.assets(cluster.version)

    def controller_manager(*, stock: bool) -> list[str]:
        [port] = free_ports(1)
        ports = Ports(0, port, 0)
        arguments = controlplane.controller_manager_arguments(layout, ports, cluster.version)
        kept = [each for each in arguments if not (stock and each.startswith("--kube-api-"))]
        return [str(assets.directory / CONTROLLER_MANAGER), *kept]

    cluster.processes[CONTROLLER_MANAGER].stop()
    slow = cluster.start_process("stock-limits", controller_manager(stock=True), grace_s=0)
    try:
        done = preflight(ready, "--measure", "-o", "json")
    finally:
        slow.stop()
        cluster.start_process("raised-limits", controller_manager(stock=False), grace_s=0)

    [rate] = [fact for fact in json.loads(done.stdout) if fact["id"] == "controller-manager-rate"]
    assert rate["status"] == "warn", rate
    assert "--kube-api-qps=200" in rate["fix"]
    assert float(rate["found"].split()[0]) <= 15

    def left() -> list[str]:
        shown = ready.kubectl("get", "namespaces", "-l", "hami-dra.io/throw-away", "-o", "name")
        return shown.stdout.split()

    until(lambda: not left(), what="the throw-away namespace is gone", timeout_s=60)
