"""The webhook beside a lab's control plane, with the rights of its shipped ServiceAccount.

It runs as a process of its own on loopback and is registered by URL, so neither a container nor a
Service is needed; everything else is as in a cluster.
"""

import base64
import ssl
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.kube.errors import ApiError
from hami_dra.lab import pki
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.failure import LabError
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.process import Process
from hami_dra.lab.readiness import is_ok
from hami_dra.lab.wait import until
from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import (
    NAME,
    SYSTEM_NAMESPACE,
    guard,
    webhook_configuration,
)

_GUARDS: Final = "validatingadmissionpolicies"
_BINDINGS: Final = "validatingadmissionpolicybindings"
_CONFIGURATIONS: Final = "mutatingwebhookconfigurations"
_TOKEN_LIFETIME: Final = "24h"  # noqa: S105 - a duration


@dataclass(frozen=True, slots=True)
class Webhook:
    """A registered webhook.

    Attributes:
        process: the running service.
        port: where it listens on loopback.
        client_config: how the API server reaches and trusts it.
    """

    process: Process
    port: int
    client_config: Json


def manifests() -> Path:
    """Find the product's manifests in the checkout around this file."""
    folder = Path(__file__).parents[2] / "manifests"
    if not (folder / "base" / "kustomization.yaml").is_file():
        raise LabError(f"{folder}: found no base/kustomization.yaml; run from a checkout")
    return folder


def install(cluster: Cluster) -> None:
    """Apply what the product ships: the DeviceClass and the webhook's ServiceAccount and roles."""
    cluster.kubectl("apply", "-k", str(manifests() / "base"))
    cluster.kubectl("apply", "-f", str(manifests() / "components" / "self-signed" / "rbac.yaml"))


def start(cluster: Cluster, *, name: str = "webhook", port: int | None = None) -> Webhook:
    """Start a webhook and return once it is ready to answer; `install` must have run.

    Args:
        cluster: where it belongs.
        name: of its log and files.
        port: to listen on; default is a free one.
    """
    [chosen] = [port] if port else free_ports(1)
    files = cluster.directory / name
    files.mkdir(exist_ok=True)
    serving = cluster.issuer.server(NAME)
    (files / "tls.crt").write_bytes(serving.certificate_pem)
    (files / "tls.key").write_bytes(serving.key_pem)
    kubeconfig = pki.kubeconfig(cluster.server, cluster.ca_pem, _token(cluster))
    pki.write_kubeconfig(files / "kubeconfig", kubeconfig)
    arguments = [
        *("--host", LOOPBACK, "--port", str(chosen)),
        *("--tls-cert", str(files / "tls.crt"), "--tls-key", str(files / "tls.key")),
        *("--kubeconfig", str(files / "kubeconfig")),
    ]
    process = cluster.start_process(name, [sys.executable, "-m", "webhook", *arguments])
    _await_ready(process, chosen, cluster.ca_pem)
    url = f"https://{LOOPBACK}:{chosen}/mutate"
    bundle = base64.b64encode(cluster.ca_pem).decode()
    return Webhook(process, chosen, {"url": url, "caBundle": bundle})


def register(api: Api, webhook: Webhook, policy: Policy | None = None) -> None:
    """Tell the API server to call a webhook for the pods that the policy concerns."""
    api.create(_CONFIGURATIONS, webhook_configuration(policy or Policy(), webhook.client_config))


def unregister(api: Api) -> None:
    """Take the registration back."""
    api.delete(_CONFIGURATIONS, NAME)


def register_guard(api: Api, policy: Policy | None = None) -> None:
    """Have the API server refuse pods that came past the webhook."""
    admission, binding = guard(policy or Policy())
    api.create(_GUARDS, admission)
    api.create(_BINDINGS, binding)


def await_registered(api: Api, namespace: str) -> None:
    """Wait until the API server heeds the registration, which takes it a moment.

    A pod that asks for a card is created as a dry run until it comes back without the request.
    """
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "probe", "image": "none", "resources": {"limits": limits}}
    pod = {"metadata": {"generateName": "probe-"}, "spec": {"containers": [container]}}

    def is_heeded() -> bool:
        seen = api.create("pods", pod, namespace=namespace, query={"dryRun": "All"})
        return "resourceClaims" in seen["spec"]

    # Until then the guard refuses the pod.
    until(is_heeded, what="the API server calls the webhook", tolerate=(ApiError,))


def _token(cluster: Cluster) -> str:
    arguments = (NAME, "--namespace", SYSTEM_NAMESPACE, "--duration", _TOKEN_LIFETIME)
    return cluster.kubectl("create", "token", *arguments).stdout.strip()


def _await_ready(process: Process, port: int, ca_pem: bytes) -> None:
    context = ssl.create_default_context(cadata=ca_pem.decode())

    def is_ready() -> bool:
        process.check()
        return is_ok(port, "/readyz", context)

    until(is_ready, what="the webhook is ready", timeout_s=60)
