"""A cluster to install into: what tests do there, and what they look at."""

import contextlib
import http.client
import json
import ssl
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from typer.testing import CliRunner, Result

from hami_dra.cli.app import app
from hami_dra.kube.errors import ApiError, NotFoundError
from hami_dra.kube.session import Session
from hami_dra.lab import pki
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.failure import KubectlError
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE

HOOKS: Final = "mutatingwebhookconfigurations"

_VOLATILE: Final = frozenset({"componentstatuses", "events", "ipaddresses", "leases"})
"""Kinds that come and go by themselves, or stand for processes."""


@dataclass
class Site:
    """A cluster to install into.

    Attributes:
        cluster: the control plane.
        api: a session of its administrator.
    """

    cluster: Cluster
    api: Api

    def run(self, *arguments: str) -> Result:
        """Run `hami-dra` against the cluster."""
        return CliRunner().invoke(app, self.arguments(*arguments))

    def arguments(self, *arguments: str) -> list[str]:
        """Return the arguments that lead here."""
        return [*arguments, "--kubeconfig", str(self.cluster.kubeconfig)]

    def install(self, *arguments: str) -> str:
        """Install without waiting for what nobody runs here, and return what was said."""
        done = self.run("install", "--no-wait", *arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    def everything(self) -> set[str]:
        """Name every object of every kind, apart from what comes and goes by itself."""
        # For a moment, a new kind cannot be listed.
        return until(
            lambda: self.api.run(_names), what="every kind can be listed", tolerate=(ApiError,)
        )

    def deployment(self) -> Json:
        """Return the webhook's Deployment."""
        return self.api.get("deployments", NAME, namespace=SYSTEM_NAMESPACE)

    def bundle(self) -> str | None:
        """Return the registered caBundle; None where there is none."""
        [hook] = self.api.get(HOOKS, NAME)["webhooks"]
        return hook["clientConfig"].get("caBundle") or None

    def nodes_of_both_replicas(self) -> set[str] | None:
        """Return where the replicas run; None unless there are two and both run."""
        pods = self.api.list("pods", namespace=SYSTEM_NAMESPACE)
        running = [each for each in pods if each.get("status", {}).get("phase") == "Running"]
        return {each["spec"]["nodeName"] for each in running} if len(running) == 2 else None

    def token(self) -> str:
        """Return a token of the webhook's account, once there is one."""

        def token() -> str:
            done = self.cluster.kubectl("create", "token", NAME, "-n", SYSTEM_NAMESPACE)
            return done.stdout.strip()

        return until(token, what="the account is there", tolerate=(KubectlError,))

    def point_to(self, url: str) -> None:
        """Have the API server call an address instead of the Service, whose pods nobody runs."""
        change = [
            {"op": "remove", "path": "/webhooks/0/clientConfig/service"},
            {"op": "add", "path": "/webhooks/0/clientConfig/url", "value": url},
        ]
        self.cluster.kubectl("patch", HOOKS, NAME, "--type=json", "-p", json.dumps(change))

    def flow_schema_of_a_call(self, token: str) -> str | None:
        """Return the uid of the FlowSchema that the API server chose for a call with a token."""
        address = urlsplit(self.cluster.server)
        context = ssl.create_default_context(cadata=self.cluster.ca_pem.decode())
        with closing(
            http.client.HTTPSConnection(str(address.hostname), address.port, context=context)
        ) as connection:
            headers = {"Authorization": f"Bearer {token}"}
            connection.request("GET", "/apis/resource.k8s.io/v1/resourceslices", headers=headers)
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.getheader("X-Kubernetes-PF-FlowSchema-UID")


async def _names(session: Session) -> set[str]:
    """Name all objects of a server, of each kind in the version that it prefers."""
    groups = (await session.get("/apis"))["groups"]
    roots = ["/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)]
    found = set()
    for root in roots:
        for served in (await session.get(root))["resources"]:
            kind = served["name"]
            if "list" not in served["verbs"] or "/" in kind or kind in _VOLATILE:
                continue
            # Deleted between the two questions: a kind of cert-manager.
            with contextlib.suppress(NotFoundError):
                items = (await session.get(f"{root}/{kind}"))["items"]
                for metadata in (each["metadata"] for each in items):
                    found.add(f"{kind}/{metadata.get('namespace', '')}/{metadata['name']}")
    return found


@contextmanager
def replica(site: Site) -> Iterator[str]:
    """Run a webhook as the installed pods would, with their account; yield its URL."""
    cluster = site.cluster
    config = cluster.directory / "replica"
    pki.write_kubeconfig(config, pki.kubeconfig(cluster.server, cluster.ca_pem, site.token()))
    [port] = free_ports(1)
    [container] = site.deployment()["spec"]["template"]["spec"]["containers"]
    shipped = [each for each in container["args"] if not each.startswith(("--port", "--policy"))]
    arguments = [*shipped, f"--host={LOOPBACK}", f"--port={port}", f"--kubeconfig={config}"]
    process = cluster.start_process(
        "replica", [sys.executable, "-W", "error", "-m", "webhook", *arguments]
    )
    try:
        yield f"https://{LOOPBACK}:{port}/mutate"
        process.check()
    finally:
        process.stop()


def _kind(kind: str) -> Json:
    """Define a kind of cert-manager that takes anything; its controllers are not needed."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


CERT_MANAGER: Final = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [_kind("Issuer"), _kind("Certificate")],
}
"""The kinds of cert-manager, without its schemas."""
