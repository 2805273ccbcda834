"""Where everything of one cluster lies inside its private directory."""

from dataclasses import dataclass
from pathlib import Path

from hami_dra.lab.keeper import LOG_FOLDER


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one cluster.

    Attributes:
        directory: the private directory (0700) that holds all of them.
    """

    directory: Path

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.directory / "pki"

    @property
    def kubeconfigs(self) -> Path:
        """One kubeconfig for each user."""
        return self.directory / "kubeconfig"

    @property
    def logs(self) -> Path:
        """One log for each process."""
        return self.directory / LOG_FOLDER

    @property
    def etcd_data(self) -> Path:
        """What etcd stores."""
        return self.directory / "etcd"

    @property
    def etcd_socket(self) -> Path:
        """Where etcd listens."""
        return self.directory / "etcd.sock"

    @property
    def etcd_peer_socket(self) -> Path:
        """Where etcd would listen for a second member."""
        return self.directory / "etcd-peer.sock"

    @property
    def scheduler_config(self) -> Path:
        """The scheduler's configuration file."""
        return self.directory / "scheduler.json"

    @property
    def audit_policy(self) -> Path:
        """What the API server writes into its audit log."""
        return self.directory / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log."""
        return self.logs / "audit.jsonl"

    @property
    def kubectl_cache(self) -> Path:
        """What kubectl remembers of the server; another cluster on the port is another server."""
        return self.directory / "kubectl-cache"

    def certificate(self, name: str) -> Path:
        """Return the certificate of a server or client."""
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        """Return the key of a server or client."""
        return self.pki / f"{name}.key"

    def public_key(self, name: str) -> Path:
        """Return the public half of a key that has no certificate."""
        return self.pki / f"{name}.pub"

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of a user."""
        return self.kubeconfigs / user
