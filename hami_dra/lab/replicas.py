"""Several webhook replicas behind one registered address, as a Deployment and its Service are.

with registered(cluster, api, count=2) as replicas:
    replicas.leave(replicas.running[0])
"""

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from hami_dra.kube.errors import ApiError
from hami_dra.lab.api import Api
from hami_dra.lab.balancer import Balancer
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.replica import SECRET, CertificateMode, Replica, await_ready, launch
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE

_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@dataclass
class Replicas:
    """Webhook processes and the address that stands for their Service.

    Attributes:
        cluster: where they belong.
        balancer: sends connections to those that joined.
        mode: where their certificates come from.
        options: further flags of each that is started from now on.
        running: those that were started and not stopped.
    """

    cluster: Cluster
    balancer: Balancer
    mode: CertificateMode = CertificateMode.SECRET
    options: Sequence[str] = ()
    running: list[Replica] = field(default_factory=list)
    _started: int = 0

    def start(self, *options: str) -> Replica:
        """Start a replica and wait until it is ready; it serves nobody before it joins.

        Args:
            options: flags of this one, beside those of each.
        """
        self._started += 1
        replica = launch(
            self.cluster,
            f"replica-{self._started}",
            mode=self.mode,
            options=(*self.options, *options),
        )
        self.running.append(replica)
        await_ready(replica)
        return replica

    def join(self, replica: Replica) -> None:
        """Do what the endpoints controller does when a replica has become ready."""
        self.balancer.add(replica.port)

    def leave(self, replica: Replica) -> None:
        """Do what the endpoints controller does when a replica terminates or is not ready."""
        self.balancer.remove(replica.port)

    def add(self) -> Replica:
        """Start a replica that serves."""
        replica = self.start()
        self.join(replica)
        return replica

    def forget(self, replica: Replica) -> None:
        """Clean up after a replica that was stopped or has died."""
        self.leave(replica)
        replica.process.stop()
        self.running.remove(replica)

    def total(self, metric: str) -> float:
        """Add up a metric over those that run."""
        return sum(replica.metric(metric) for replica in self.running)

    def client_config(self, path: str) -> Json:
        """How the API server reaches them; in the mode secret they fill in whom it trusts."""
        found: Json = {"url": f"{self.balancer.url}{path}"}
        if self.mode is CertificateMode.FILES:
            found["caBundle"] = base64.b64encode(self.cluster.ca_pem).decode()
        return found


@contextmanager
def registered(
    cluster: Cluster,
    api: Api,
    *,
    count: int = 2,
    mode: CertificateMode = CertificateMode.SECRET,
    options: Sequence[str] = (),
) -> Iterator[Replicas]:
    """Run replicas and have the API server call them in place of what is registered, meanwhile.

    Args:
        cluster: with a registered webhook.
        api: a session of its administrator.
        count: how many serve at first.
        mode: where their certificates come from.
        options: further flags of each.
    """
    before = {kind: api.find(kind, NAME) for kind in _CONFIGURATIONS}
    with Balancer().serving() as balancer:
        replicas = Replicas(cluster, balancer, mode, options)
        try:
            for kind, found in before.items():
                _register(api, kind, found and _redirected(found, replicas))
            for _ in range(count):
                replicas.add()
            _await_called(api, replicas)
            yield replicas
        finally:
            for replica in list(replicas.running):
                replicas.forget(replica)
            api.delete("secrets", SECRET, namespace=SYSTEM_NAMESPACE)
            for kind, found in before.items():
                _register(api, kind, found)


def _register(api: Api, kind: str, configuration: Json | None) -> None:
    """Have this registration and no other, whatever became of the one before."""
    api.delete(kind, NAME)
    if configuration is not None:
        metadata = {key: configuration["metadata"].get(key) for key in ("name", "labels")}
        api.create(kind, {**configuration, "metadata": metadata})


def _redirected(configuration: Json, replicas: Replicas) -> Json:
    """Return a registration that leads to the replicas, path by path."""
    webhooks = [
        {**each, "clientConfig": replicas.client_config(urlsplit(each["clientConfig"]["url"]).path)}
        for each in configuration["webhooks"]
    ]
    return {**configuration, "webhooks": webhooks}


def _await_called(api: Api, replicas: Replicas) -> None:
    """Wait until a pod's creation, as a dry run, reaches a replica."""
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "probe", "image": "none", "resources": {"limits": limits}}
    pod = {"metadata": {"generateName": "probe-"}, "spec": {"containers": [container]}}

    def is_called() -> bool:
        with suppress(ApiError):
            api.create("pods", pod, namespace="default", query={"dryRun": "All"})
        return replicas.total('hami_dra_webhook_reviews_total{decision="mutated"}') > 0

    until(is_called, what="the API server calls the replicas")
