"""Ask a control plane over HTTP whether it is ready."""

import contextlib
import http.client
import socket
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from hami_dra.lab import pki
from hami_dra.lab.controlplane import Ports
from hami_dra.lab.layout import Layout
from hami_dra.lab.ports import LOOPBACK

# A component that has just begun to listen may take its time; the wait asks again.
_TIMEOUT_S = 2.0

_DEFAULT_SERVICE_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks one control plane; each question is answered now, by True or an exception.

    The exception is an `OSError`, which `wait.until` takes for "not yet" and reports at the end.

    Attributes:
        etcd_socket: where etcd listens.
        ports: where the others do.
        context: trusts the cluster's authority and presents an administrator.
    """

    etcd_socket: Path
    ports: Ports
    context: ssl.SSLContext

    def etcd(self) -> bool:
        """Ask whether etcd serves."""
        return _is_ok(_SocketConnection(self.etcd_socket), "/health")

    def api_server(self) -> bool:
        """Ask whether the API server is ready, which includes etcd and its start-up hooks."""
        return is_ok(self.ports.api_server, "/readyz", self.context)

    def controller_manager(self) -> bool:
        """Ask whether the controller-manager is healthy."""
        return is_ok(self.ports.controller_manager, "/healthz", self.context)

    def scheduler(self) -> bool:
        """Ask whether the scheduler is healthy."""
        return is_ok(self.ports.scheduler, "/healthz", self.context)

    def default_service_account(self) -> bool:
        """Ask whether pods can be created in the namespace default."""
        return is_ok(self.ports.api_server, _DEFAULT_SERVICE_ACCOUNT, self.context)


def is_ok(port: int, path: str, context: ssl.SSLContext) -> bool:
    """Ask a server on loopback; False never, an `OSError` says why not.

    Args:
        port: where it listens, with TLS.
        path: what is asked.
        context: trusts its certificate.
    """
    connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=_TIMEOUT_S, context=context)
    return _is_ok(connection, path)


def administrator_context(layout: Layout) -> ssl.SSLContext:
    """Return the TLS settings of the cluster's administrator."""
    context = ssl.create_default_context(cafile=layout.certificate(pki.AUTHORITY))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(layout.certificate(pki.ADMIN), layout.key(pki.ADMIN))
    return context


def _is_ok(connection: http.client.HTTPConnection, path: str) -> bool:
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read().decode(errors="replace")
        except http.client.HTTPException as cause:
            raise ConnectionError(f"{path}: {cause!r}") from cause
    if answer.status != HTTPStatus.OK:
        raise ConnectionError(f"{path}: HTTP {answer.status}: {body}")
    return True
