"""Two replicas that sign for themselves beside a real API server, and what is watched of them."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from certs.bundle import Authority, parse
from hami_dra.lab import webhook
from hami_dra.lab.api import Api
from hami_dra.lab.ports import LOOPBACK
from hami_dra.lab.replica import SECRET, CertificateMode, Replica, await_ready, launch
from hami_dra.lab.wait import until
from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE, webhook_configuration
from tests.e2e.world import World, pod

CONFIGURATIONS: Final = "mutatingwebhookconfigurations"
_LOADERS: Final = 2


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
        return bundles(self.api, CONFIGURATIONS)

    def bundle_pem(self) -> bytes:
        """Return the one registered bundle."""
        [text] = self.bundles()
        return base64.b64decode(text)

    def overwrite_bundles(self, text: str) -> None:
        """Do to the registration what a careless `kubectl apply` does."""
        overwrite_bundles(self.api, CONFIGURATIONS, text)

    def served(self) -> list[bytes]:
        """Return what each replica serves, which the registered bundle must trust."""
        bundle = self.bundle_pem()
        return [replica.served(bundle) for replica in self.replicas]


def bundles(api: Api, kind: str) -> set[str]:
    """Return the bundles of our registration of a kind, base64."""
    webhooks = api.get(kind, NAME)["webhooks"]
    return {each["clientConfig"].get("caBundle", "") for each in webhooks}


def overwrite_bundles(api: Api, kind: str, text: str) -> None:
    """Have our registration of a kind trust another authority."""
    found = api.get(kind, NAME)
    for each in found["webhooks"]:
        each["clientConfig"]["caBundle"] = text
    path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{NAME}"
    api.run(lambda session: session.replace(path, found))


_SECRET_PATH: Final = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/{SECRET}"


@contextmanager
def rotating(world: World, *, authority_s: int, leaf_s: int) -> Iterator[Rotation]:
    """Put two self-signing replicas in the place of the scene's webhook meanwhile."""
    scene = world.scene
    webhook.unregister(scene.api)
    options = ("--authority-lifetime-s", str(authority_s), "--leaf-lifetime-s", str(leaf_s))
    mode = CertificateMode.SECRET
    replicas: list[Replica] = []
    try:
        for number in range(2):
            name = f"self-signed-{number}"
            replicas.append(launch(scene.cluster, name, mode=mode, options=options))
        scene.api.create(CONFIGURATIONS, _registration([each.port for each in replicas]))
        shown = Rotation(scene.api, replicas)
        for replica in replicas:
            await_ready(replica)
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
