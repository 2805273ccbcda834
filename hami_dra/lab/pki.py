"""All certificates, keys and kubeconfig files of one cluster."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import KeyPair, Usage, create_authority, issue
from hami_dra.lab.layout import Layout
from hami_dra.lab.ports import LOOPBACK

# The names of files in the layout.
AUTHORITY = "ca"
API_SERVER = "apiserver"
KUBELET_CLIENT = "apiserver-kubelet-client"
COMPONENT = "component"
SERVICE_ACCOUNT = "service-account"

ADMIN = "admin"
CONTROLLER_MANAGER = "controller-manager"
SCHEDULER = "scheduler"

# The first address of the service range is the API server's own service.
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"

# A lab that is left running over a holiday still works after it.
_LIFETIME = timedelta(days=365)

_ADMINISTRATORS = "system:masters"


@dataclass(frozen=True, slots=True)
class Issuer:
    """Issues the certificates of one cluster.

    Attributes:
        authority: the cluster's only authority, for servers and clients alike.
        now: when all of them begin.
    """

    authority: KeyPair
    now: datetime

    def client(self, user: str, *groups: str) -> KeyPair:
        """Issue a client certificate that makes its holder this user in these groups."""
        return issue(
            self.authority,
            common_name=user,
            organizations=groups,
            usages=[Usage.CLIENT],
            now=self.now,
            lifetime=_LIFETIME,
        )

    def server(self, name: str, *dns_names: str, ip_addresses: tuple[str, ...] = ()) -> KeyPair:
        """Issue a server certificate for loopback and these names and addresses."""
        return issue(
            self.authority,
            common_name=name,
            usages=[Usage.SERVER],
            now=self.now,
            lifetime=_LIFETIME,
            dns_names=("localhost", *dns_names),
            ip_addresses=(LOOPBACK, *ip_addresses),
        )


def create_issuer(now: datetime) -> Issuer:
    """Create the authority of a new cluster."""
    return Issuer(create_authority("hami-dra-lab", now=now, lifetime=_LIFETIME), now)


def kubeconfig(server: str, ca_pem: bytes, client: KeyPair | str) -> dict[str, Any]:
    """Describe one cluster and one user, with everything inside, for a kubeconfig file.

    Args:
        server: the URL of the API server.
        ca_pem: who signed the API server's certificate.
        client: a client certificate with its key, or a bearer token.
    """
    name = "lab"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, "certificate-authority-data": _base64(ca_pem)},
            }
        ],
        "users": [{"name": name, "user": _credentials(client)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write_kubeconfig(path: Path, content: Mapping[str, Any]) -> None:
    """Write a kubeconfig that only its owner may read; JSON is YAML to every reader of it."""
    path.parent.mkdir(exist_ok=True)
    _write(path, json.dumps(content, indent=1).encode())


def write_pki(layout: Layout, issuer: Issuer) -> None:
    """Write the certificates and keys that the components read from files."""
    layout.pki.mkdir(exist_ok=True)
    pairs = {
        AUTHORITY: issuer.authority,
        API_SERVER: issuer.server(
            "kube-apiserver",
            *("kubernetes", "kubernetes.default", "kubernetes.default.svc"),
            "kubernetes.default.svc.cluster.local",
            ip_addresses=(API_SERVICE,),
        ),
        KUBELET_CLIENT: issuer.client("kube-apiserver-kubelet-client", _ADMINISTRATORS),
        COMPONENT: issuer.server("component"),
        ADMIN: _administrator(issuer),
    }
    for name, pair in pairs.items():
        _write(layout.certificate(name), pair.certificate_pem)
        _write(layout.key(name), pair.key_pem)
    _write_signing_key(layout)


def write_kubeconfigs(layout: Layout, issuer: Issuer, server: str) -> None:
    """Write the kubeconfigs of the administrator and of the components."""
    clients = {
        ADMIN: _administrator(issuer),
        CONTROLLER_MANAGER: issuer.client("system:kube-controller-manager"),
        SCHEDULER: issuer.client("system:kube-scheduler"),
    }
    ca_pem = issuer.authority.certificate_pem
    for user, client in clients.items():
        write_kubeconfig(layout.kubeconfig(user), kubeconfig(server, ca_pem, client))


def _administrator(issuer: Issuer) -> KeyPair:
    return issuer.client("admin", _ADMINISTRATORS)


def _write_signing_key(layout: Layout) -> None:
    """Create the key that signs the tokens of service accounts, and its half that verifies."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(layout.key(SERVICE_ACCOUNT), private)
    _write(layout.public_key(SERVICE_ACCOUNT), public)


def _credentials(client: KeyPair | str) -> dict[str, str]:
    if isinstance(client, str):
        return {"token": client}
    return {
        "client-certificate-data": _base64(client.certificate_pem),
        "client-key-data": _base64(client.key_pem),
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
