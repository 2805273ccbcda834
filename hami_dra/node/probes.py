"""Probes and metrics over HTTP, in a thread of their own so that a busy agent still answers."""

import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

Checks = Callable[[], Mapping[str, str]]
"""Return what is wrong, by name; an empty text means that it is right."""

_JSON: Final = ("Content-Type", "application/json")


class Probes:
    """Serves /healthz, /readyz and /metrics.

    Args:
        address: to listen on; empty for all.
        port: 0 lets the system choose.
        alive: why the process should be restarted.
        ready: why it does not do its work yet.
        registry: what /metrics shows.
    """

    def __init__(
        self, address: str, port: int, *, alive: Checks, ready: Checks, registry: CollectorRegistry
    ) -> None:
        metrics = make_wsgi_app(registry)

        def answer(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
            match environ.get("PATH_INFO"):
                case "/healthz":
                    return _answer(alive(), start)
                case "/readyz":
                    return _answer(ready(), start)
                case "/metrics":
                    shown: Iterable[bytes] = metrics(environ, start)
                    return shown
            start("404 Not Found", [_JSON])
            return [b'{"error": "found another path than /healthz, /readyz and /metrics"}\n']

        host, server = _listener(address)
        self._server = make_server(host, port, answer, server_class=server, handler_class=_Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="probes", daemon=True
        )

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    # A client that says nothing must not hold a thread for ever.
    timeout = 10

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Keep probes out of the log."""


def _listener(address: str) -> tuple[str, type[WSGIServer]]:
    """Choose what listens; a pod may have an address of either family."""
    if not address:
        return ("::", _Server6) if socket.has_dualstack_ipv6() else ("0.0.0.0", _Server)  # noqa: S104 - probes come from the kubelet
    return address, _Server6 if ":" in address else _Server


def _answer(wrong: Mapping[str, str], start: "StartResponse") -> Iterable[bytes]:
    failed = {name: text for name, text in wrong.items() if text}
    status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
    start(f"{status.value} {status.phrase}", [_JSON])
    return [json.dumps(failed or {"ok": True}).encode() + b"\n"]
