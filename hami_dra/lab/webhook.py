"""The webhook beside a lab's control plane, with the rights of its shipped ServiceAccount.

It runs as a process of its own on loopback and is registered by URL, so neither a container nor a
Service is needed; everything else is as in a cluster.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.kube.errors import ApiError
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.failure import LabError
from hami_dra.lab.ports import LOOPBACK
from hami_dra.lab.process import Process
from hami_dra.lab.replica import await_ready, launch
from hami_dra.lab.wait import until
from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import (
    GUARD_NAME,
    NAME,
    claim_webhook_configuration,
    guard,
    webhook_configuration,
)

_GUARDS: Final = "validatingadmissionpolicies"
_BINDINGS: Final = "validatingadmissionpolicybindings"
_MUTATING: Final = "mutatingwebhookconfigurations"
_VALIDATING: Final = "validatingwebhookconfigurations"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A registered webhook.

    Attributes:
        process: the running service.
        port: where it listens on loopback.
        client_config: how the API server reaches and trusts it for pods.
    """

    process: Process
    port: int
    client_config: Json

    @property
    def claim_config(self) -> Json:
        """How the API server reaches and trusts it for claims."""
        return {**self.client_config, "url": f"https://{LOOPBACK}:{self.port}/validate"}


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
    replica = launch(cluster, name, port=port)
    await_ready(replica)
    url = f"https://{LOOPBACK}:{replica.port}/mutate"
    bundle = base64.b64encode(cluster.ca_pem).decode()
    return Webhook(replica.process, replica.port, {"url": url, "caBundle": bundle})


def register(api: Api, webhook: Webhook, policy: Policy | None = None) -> None:
    """Tell the API server to call a webhook for the pods and claims that the policy concerns."""
    meaning = policy or Policy()
    api.create(_MUTATING, webhook_configuration(meaning, webhook.client_config))
    api.create(_VALIDATING, claim_webhook_configuration(meaning, webhook.claim_config))


def unregister(api: Api) -> None:
    """Take the registration back."""
    api.delete(_MUTATING, NAME)
    api.delete(_VALIDATING, NAME)


def register_guard(api: Api, policy: Policy | None = None) -> None:
    """Have the API server refuse pods that came past the webhook."""
    admission, binding = guard(policy or Policy())
    api.create(_GUARDS, admission)
    api.create(_BINDINGS, binding)


def unregister_guard(api: Api) -> None:
    """Have the API server refuse no pod any more."""
    api.delete(_BINDINGS, GUARD_NAME)
    api.delete(_GUARDS, GUARD_NAME)


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
