"""A whole system to look at: control plane, simulated nodes, their kubelet, and the webhook."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from hami_dra.lab import webhook
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.nodes import add_node
from hami_dra.lab.webhook import Webhook


@dataclass(slots=True)
class Scene:
    """A cluster with everything in place.

    Attributes:
        cluster: the control plane.
        api: a session of its administrator.
        webhook: the registered webhook.
    """

    cluster: Cluster
    api: Api
    webhook: Webhook

    def restart_webhook(self) -> None:
        """Start the webhook anew at the registered address, after its process was stopped."""
        self.webhook = webhook.start(self.cluster, port=self.webhook.port)


@contextmanager
def scene(
    nodes: Mapping[str, Mapping[str, int]],
    *,
    say: Callable[[str], None] = lambda _: None,
    version: str | None = None,
    audited: bool = False,
) -> Iterator[Scene]:
    """Set a scene up and take it down again.

    Args:
        nodes: how many cards of which profile each node has.
        say: told what happens next.
        version: of Kubernetes; default is the lab's.
        audited: whether the API server keeps an audit log.
    """
    say("starting etcd, API server, controller-manager and scheduler")
    with (
        Cluster.start(version=version, audited=audited) as cluster,
        Api(cluster.kubeconfig) as api,
    ):
        say(f"Kubernetes {cluster.version} is ready; adding {', '.join(nodes) or 'no nodes'}")
        start_kubelet(cluster)
        webhook.install(cluster)
        for name, profiles in nodes.items():
            add_node(api, name, profiles)
        say("starting and registering the webhook")
        running = webhook.start(cluster)
        webhook.register(api, running)
        webhook.register_guard(api)
        webhook.await_registered(api, "default")
        yield Scene(cluster, api, running)


def start_kubelet(cluster: Cluster) -> None:
    """Start the simulated kubelet of all simulated nodes."""
    module = "hami_dra.lab.kubelet"
    arguments = ["--kubeconfig", str(cluster.kubeconfig)]
    cluster.start_process("kubelet", [sys.executable, "-m", module, *arguments])
