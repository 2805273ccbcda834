"""One webhook process with the rights of its shipped ServiceAccount, and what it says of itself."""

import http.client
import re
import ssl
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from hami_dra.lab.cluster import Cluster
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.process import Process
from hami_dra.lab.wait import until
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE

IDENTITY: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{NAME}"
"""The user that the webhook is to the API server."""

SECRET: Final = f"{NAME}-ca"
"""The Secret in which replicas share their authority."""

_TOKEN_LIFETIME: Final = "24h"  # noqa: S105 - a duration
_TIMEOUT_S: Final = 60.0


class CertificateMode(StrEnum):
    """Where a replica's certificate comes from."""

    FILES = "files"
    """The lab's own authority signs it and writes it to files."""
    SECRET = "secret"  # noqa: S105 - a kind of object
    """The replica signs it under the authority that it shares with others in a Secret."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A running webhook.

    Attributes:
        process: the service.
        port: where it listens on loopback.
        files: its folder, with the certificate and key in the mode files.
    """

    process: Process
    port: int
    files: Path

    def served(self, bundle_pem: bytes) -> bytes:
        """Shake hands as the API server would and return the certificate, DER."""
        context = ssl.create_default_context(cadata=bundle_pem.decode())
        with closing(self.connection(context)) as connection:
            connection.connect()
            return connection.sock.getpeercert(binary_form=True) or b""

    def show(self, path: str) -> tuple[int, str]:
        """Return status and body of a page, whoever signed the certificate."""
        with closing(self.connection()) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def is_ready(self) -> bool:
        """Tell whether it answers reviews; it must be alive."""
        self.process.check()
        return self.show("/readyz")[0] == http.client.OK

    def metric(self, name: str) -> float:
        """Return a metric's value, summed over its labels.

        A name may carry labels as Prometheus writes them: `reviews_total{decision="error"}`.
        """
        lines = self.show("/metrics")[1].splitlines()
        sample = re.compile(rf"{re.escape(name)}(?:{{.*}})? (\S+)")
        return sum(float(found[1]) for line in lines if (found := sample.fullmatch(line)))

    def resident_mib(self) -> float:
        """Return the memory that it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [kib] = re.findall(r"VmRSS:\s+(\d+) kB", status)
        return int(kib) / 1024

    def connection(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        """Return a connection that is not open yet.

        Args:
            context: default asks only what the process says and trusts whoever signed.
        """
        return http.client.HTTPSConnection(
            LOOPBACK, self.port, timeout=_TIMEOUT_S, context=context or trusting_anybody()
        )


def trusting_anybody() -> ssl.SSLContext:
    """Return TLS settings for looking at a server rather than believing it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def launch(
    cluster: Cluster,
    name: str,
    *,
    port: int | None = None,
    mode: CertificateMode = CertificateMode.FILES,
    options: Sequence[str] = (),
) -> Replica:
    """Start a replica without waiting for it; the shipped roles must be installed.

    Args:
        cluster: where it belongs.
        name: of its log and files.
        port: to listen on; default is a free one.
        mode: where its certificate comes from.
        options: further flags.
    """
    [chosen] = [port] if port else free_ports(1)
    files = cluster.directory / name
    files.mkdir(exist_ok=True)
    arguments = [
        *("--host", LOOPBACK, "--port", str(chosen), "--account", str(files)),
        *("--termination-delay-s", "0"),
        *(_file_options(cluster, files) if mode is CertificateMode.FILES else _SECRET_OPTIONS),
        *options,
    ]
    argv = [sys.executable, "-m", "webhook", *arguments]
    environment = in_pod(cluster, files, _token(cluster))
    return Replica(cluster.start_process(name, argv, environment), chosen, files)


def in_pod(cluster: Cluster, account: Path, token: str) -> dict[str, str]:
    """Give a process what the kubelet gives a pod, apart from the place of its account.

    Args:
        cluster: whose API server it talks to.
        account: directory for its token and for whom it trusts.
        token: of its service account.

    Returns:
        Its environment.
    """
    (account / "token").write_text(token)
    (account / "ca.crt").write_bytes(cluster.ca_pem)
    host, _, port = cluster.server.removeprefix("https://").rpartition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "KUBECONFIG": ""}


def await_ready(replica: Replica) -> None:
    """Wait until a replica answers reviews."""
    until(replica.is_ready, what=f"{replica.process.name} is ready")


_SECRET_OPTIONS: Final = ("--certificate-mode", "secret", "--certificate-secret", SECRET)


def _file_options(cluster: Cluster, files: Path) -> list[str]:
    serving = cluster.issuer.server(NAME)
    (files / "tls.crt").write_bytes(serving.certificate_pem)
    (files / "tls.key").write_bytes(serving.key_pem)
    return ["--tls-cert", str(files / "tls.crt"), "--tls-key", str(files / "tls.key")]


def _token(cluster: Cluster) -> str:
    arguments = (NAME, "--namespace", SYSTEM_NAMESPACE, "--duration", _TOKEN_LIFETIME)
    return cluster.kubectl("create", "token", *arguments).stdout.strip()
