"""How each component of the control plane is called: pure functions to argument lists.

Each takes where things lie (`Layout`) and which ports were chosen (`Ports`); each returns the
arguments after the program. Versions differ in `feature_gates` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hami_dra.lab import pki
from hami_dra.lab.failure import LabError
from hami_dra.lab.layout import Layout
from hami_dra.lab.ports import LOOPBACK

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"

# The stock limits cap pods with a claim template at 11 a second; these give what the host can.
_QPS = 200
_BURST = 400

# Ours are fake nodes without a kubelet that renews their leases: these two would taint them and
# evict their pods.
_LEFT_OUT = ("node-lifecycle-controller", "taint-eviction-controller")

_OLDEST = (1, 34)
_CONSUMABLE_CAPACITY_IS_DEFAULT = (1, 36)

_NO_GATES: Mapping[str, bool] = MappingProxyType({})

# Older etcd insists on host and port where it tells other members of itself; there are none.
_ADVERTISED = f"http://{LOOPBACK}:1"

# The kernel's limit of a socket's path is 108 bytes with the final zero.
_LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports of one control plane; etcd needs none, it listens on a socket file."""

    api_server: int
    controller_manager: int
    scheduler: int


def feature_gates(version: str) -> Mapping[str, bool]:
    """Return the gates that a version such as `1.35.4` needs beyond its defaults."""
    release = tuple(int(part) for part in version.split(".")[:2])
    if release < _OLDEST:
        raise LabError(
            f"Kubernetes {version}: found a version without resource.k8s.io/v1, expected 1.34 or"
            " later; choose another one"
        )
    if release < _CONSUMABLE_CAPACITY_IS_DEFAULT:
        return {"DRAConsumableCapacity": True}
    return {}


def etcd_arguments(layout: Layout) -> list[str]:
    """Return how to call etcd: one member, on a socket file that only we can reach."""
    client, peer = _socket_url(layout.etcd_socket), _socket_url(layout.etcd_peer_socket)
    return [
        "--name=lab",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={_ADVERTISED}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={_ADVERTISED}",
        f"--initial-cluster=lab={_ADVERTISED}",
        # Waiting for the disk protects data from a power cut; this data does not outlive us.
        "--unsafe-no-fsync",
        # Milliseconds; alone, it only waits for the election before it elects itself.
        "--heartbeat-interval=10",
        "--election-timeout=100",
        "--log-level=warn",
    ]


def api_server_arguments(
    layout: Layout, ports: Ports, version: str, gates: Mapping[str, bool] = _NO_GATES
) -> list[str]:
    """Return how to call kube-apiserver: loopback only, with the authorization of a real cluster.

    Nodes are held to what kubelets may do, so that an agent that needs more fails here too.

    Args:
        layout: where things lie.
        ports: where to listen.
        version: of Kubernetes.
        gates: feature gates of this server alone.
    """
    return [
        f"--etcd-servers={_socket_url(layout.etcd_socket)}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={ports.api_server}",
        # A loopback address is refused as the endpoint of the service `kubernetes`.
        "--endpoint-reconciler-type=none",
        *_serving(layout, pki.API_SERVER),
        f"--client-ca-file={layout.certificate(pki.AUTHORITY)}",
        f"--kubelet-client-certificate={layout.certificate(pki.KUBELET_CLIENT)}",
        f"--kubelet-client-key={layout.key(pki.KUBELET_CLIENT)}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-cluster-ip-range={pki.SERVICE_RANGE}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.public_key(pki.SERVICE_ACCOUNT)}",
        f"--service-account-signing-key-file={layout.key(pki.SERVICE_ACCOUNT)}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        # Dials a service's pods by itself, so that webhooks need no kube-proxy.
        "--enable-aggregator-routing=true",
        *_gates(version, gates),
    ]


def audit_arguments(layout: Layout) -> list[str]:
    """Return what makes kube-apiserver keep an audit log, written before it goes on."""
    return [
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-mode=blocking",
    ]


def controller_manager_arguments(layout: Layout, ports: Ports, version: str) -> list[str]:
    """Return how to call kube-controller-manager: for nodes that are only objects."""
    return [
        f"--kubeconfig={layout.kubeconfig(pki.CONTROLLER_MANAGER)}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.controller_manager}",
        *_serving(layout, pki.COMPONENT),
        f"--root-ca-file={layout.certificate(pki.AUTHORITY)}",
        f"--service-account-private-key-file={layout.key(pki.SERVICE_ACCOUNT)}",
        f"--cluster-signing-cert-file={layout.certificate(pki.AUTHORITY)}",
        f"--cluster-signing-key-file={layout.key(pki.AUTHORITY)}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        f"--controllers=*,{','.join(f'-{name}' for name in _LEFT_OUT)}",
        f"--kube-api-qps={_QPS}",
        f"--kube-api-burst={_BURST}",
        *_gates(version),
    ]


def scheduler_arguments(layout: Layout, ports: Ports, version: str) -> list[str]:
    """Return how to call kube-scheduler; the rest stands in `scheduler_config`."""
    return [
        f"--config={layout.scheduler_config}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.scheduler}",
        *_serving(layout, pki.COMPONENT),
        *_gates(version),
    ]


def scheduler_config(layout: Layout) -> dict[str, Any]:
    """Return the scheduler's configuration file, which alone can raise its client's limits."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(layout.kubeconfig(pki.SCHEDULER)),
            "qps": _QPS,
            "burst": _BURST,
        },
    }


def _serving(layout: Layout, name: str) -> list[str]:
    return [
        f"--tls-cert-file={layout.certificate(name)}",
        f"--tls-private-key-file={layout.key(name)}",
    ]


def _gates(version: str, more: Mapping[str, bool] = _NO_GATES) -> list[str]:
    gates = {**feature_gates(version), **more}
    if not gates:
        return []
    text = ",".join(f"{name}={str(is_on).lower()}" for name, is_on in gates.items())
    return [f"--feature-gates={text}"]


def _socket_url(path: Path) -> str:
    if len(str(path).encode()) > _LONGEST_SOCKET_PATH:
        raise LabError(
            f"{path}: found a path of {len(str(path).encode())} bytes, expected at most"
            f" {_LONGEST_SOCKET_PATH} for a socket; choose a shorter directory"
        )
    return f"unix://{path}"
