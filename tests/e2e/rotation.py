"""Two replicas that sign for themselves beside a real API server, and what is watched of them."""

import base64
import http.client
import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

from certs.bundle import Authority, parse
from hami_dra.lab import pki, webhook
from hami_dra.lab.api import Api
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.process import Process
from hami_dra.lab.scene import Scene
from hami_dra.lab.wait import until
from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE, webhook_configuration
from tests.e2e.world import World, pod

SECRET: Final = f"{NAME}-ca"
CONFIGURATIONS: Final = "mutatingwebhookconfigurations"
_LOADERS: Final = 2


@dataclass(frozen=True, slots=True)
class Replica:
    """A webhook process that signs its own certificate."""

    process: Process
    port: int

    def served(self, bundle_pem: bytes) -> bytes:
        """Shake hands as the API server would and return the certificate, DER."""
        with closing(self._connection(ssl.create_default_context(cadata=bundle_pem.decode()))) as c:
            c.connect()
            return c.sock.getpeercert(binary_form=True) or b""

    def show(self, path: str) -> tuple[int, str]:
        """Return status and body of a page, whoever signed the certificate."""
        # What is asked is what the process says of itself; `served` judges the certificate.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with closing(self._connection(context)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def is_ready(self) -> bool:
        """Tell whether it answers reviews; it must be alive."""
        self.process.check()
        return self.show("/readyz")[0] == 200

    def metric(self, name: str) -> float:
        """Return a metric without labels."""
        lines = self.show("/metrics")[1].splitlines()
        [value] = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
        return float(value)

    def _connection(self, context: ssl.SSLContext) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(LOOPBACK, self.port, timeout=10, context=context)


@dataclass
class Rotation:
    """Replicas of one registration, each called for every pod.

    Attributes:
        api: a session of the administrator.
        replicas: the processes.
    """

    api: Api
    replicas: list[Replica]

    def authority(self) -> Authority:
        """Return what the Secret holds."""
        data = self.secret()["data"]
        return parse({key: base64.b64decode(value) for key, value in data.items()})

    def secret(self) -> Json:
        """Return the Secret."""
        return self.api.run(lambda session: session.get(_SECRET_PATH))

    def write_secret(self, data: Json) -> None:
        """Overwrite the whole data of the Secret."""
        body = {**self.secret(), "data": data}
        self.api.run(lambda session: session.replace(_SECRET_PATH, body))

    def delete_secret(self) -> None:
        """Delete the Secret."""
        self.api.run(lambda session: session.delete(_SECRET_PATH))

    def bundles(self) -> set[str]:
        """Return the registered bundles, base64."""
        webhooks = self.api.get(CONFIGURATIONS, NAME)["webhooks"]
        return {each["clientConfig"].get("caBundle", "") for each in webhooks}

    def bundle_pem(self) -> bytes:
        """Return the one registered bundle."""
        [text] = self.bundles()
        return base64.b64decode(text)

    def overwrite_bundles(self, text: str) -> None:
        """Do to the registration what a careless `kubectl apply` does."""
        found = self.api.get(CONFIGURATIONS, NAME)
        for each in found["webhooks"]:
            each["clientConfig"]["caBundle"] = text
        path = f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATIONS}/{NAME}"
        self.api.run(lambda session: session.replace(path, found))

    def served(self) -> list[bytes]:
        """Return what each replica serves, which the registered bundle must trust."""
        bundle = self.bundle_pem()
        return [replica.served(bundle) for replica in self.replicas]


_SECRET_PATH: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{SECRET}"


@contextmanager
def rotating(world: World, *, authority_s: int, leaf_s: int) -> Iterator[Rotation]:
    """Put two self-signing replicas in the place of the scene's webhook meanwhile."""
    scene = world.scene
    webhook.unregister(scene.api)
    replicas: list[Replica] = []
    try:
        for number, port in enumerate(free_ports(2)):
            replicas.append(_start(scene, f"self-signed-{number}", port, authority_s, leaf_s))
        scene.api.create(CONFIGURATIONS, _registration([each.port for each in replicas]))
        shown = Rotation(scene.api, replicas)
        for replica in replicas:
            until(replica.is_ready, what="a replica is ready", timeout_s=60)
        until(lambda: all(shown.bundles()), what="the registration trusts the authority")
        webhook.await_registered(scene.api, world.namespace)
        yield shown
    finally:
        webhook.unregister(scene.api)
        for replica in replicas:
            replica.process.stop()
        scene.cluster.kubectl("-n", SYSTEM_NAMESPACE, "delete", "secret", SECRET)
        webhook.register(scene.api, scene.webhook)
        webhook.await_registered(scene.api, world.namespace)


def _start(scene: Scene, name: str, port: int, authority_s: int, leaf_s: int) -> Replica:
    cluster = scene.cluster
    token = cluster.kubectl("create", "token", NAME, "-n", SYSTEM_NAMESPACE).stdout.strip()
    config = cluster.directory / name / "kubeconfig"
    pki.write_kubeconfig(config, pki.kubeconfig(cluster.server, cluster.ca_pem, token))
    arguments = [
        *("--host", LOOPBACK, "--port", str(port), "--kubeconfig", str(config)),
        *("--certificate-mode", "secret", "--certificate-secret", SECRET),
        *("--authority-lifetime-s", str(authority_s), "--leaf-lifetime-s", str(leaf_s)),
    ]
    argv = [sys.executable, "-W", "error", "-m", "webhook", *arguments]
    return Replica(cluster.start_process(name, argv), port)


def _registration(ports: list[int]) -> Json:
    """Register one webhook a replica; the later ones must see converted pods too, so no filter."""
    found = webhook_configuration(Policy(), {})
    [model] = found["webhooks"]
    found["webhooks"] = [
        {
            **model,
            "name": f"replica-{number}.hami-dra.io",
            "clientConfig": {"url": f"https://{LOOPBACK}:{port}/mutate"},
            "matchConditions": [],
        }
        for number, port in enumerate(ports)
    ]
    return found


@dataclass
class Load:
    """What became of the steady load.

    Attributes:
        calls: pods that were converted as they should.
        failures: what went wrong instead.
    """

    calls: int = 0
    failures: list[str] = field(default_factory=list)


@contextmanager
def loaded(world: World, rotation: Rotation) -> Iterator[Load]:
    """Create pods as dry runs all the time, and shake hands with each replica all the time."""
    load = Load()
    stop = threading.Event()
    work: list[Callable[[Api], None]] = [
        *(lambda api: _create(api, world.namespace) for _ in range(_LOADERS)),
        lambda api: _shake(Rotation(api, rotation.replicas)),
    ]

    def repeat(act: Callable[[Api], None]) -> None:
        with Api(world.scene.cluster.kubeconfig) as api:
            while not stop.is_set():
                try:
                    act(api)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
                    load.failures.append(repr(error))
                else:
                    load.calls += 1

    threads = [threading.Thread(target=repeat, args=(act,)) for act in work]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _create(api: Api, namespace: str) -> None:
    wanted = pod("load", {"gpu": 1, "gpumem": 1000})
    shown = api.create("pods", wanted, namespace=namespace, query={"dryRun": "All"})
    if "resourceClaims" not in shown["spec"]:
        raise AssertionError(f"not converted: {json.dumps(shown['spec'])}")


def _shake(rotation: Rotation) -> None:
    """See that a bundle read before the handshake trusts what is served after it."""
    rotation.served()
