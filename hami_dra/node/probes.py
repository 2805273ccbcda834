"""Probes and metrics over HTTP, in a thread of their own so that a busy agent still answers."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry

from hami_dra.scraping import metrics_app
from hami_dra.serving import Server

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
        metrics = metrics_app(registry)

        def answer(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
            match environ.get("PATH_INFO"):
                case "/healthz":
                    return _answer(alive(), start)
                case "/readyz":
                    return _answer(ready(), start)
                case "/metrics":
                    return metrics(environ, start)
            start("404 Not Found", [_JSON])
            return [b'{"error": "found another path than /healthz, /readyz and /metrics"}\n']

        self._server = Server(address, port, answer)
        self._thread = threading.Thread(target=self._server.serve, name="probes", daemon=True)

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return self._server.port

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.stop()


def _answer(wrong: Mapping[str, str], start: "StartResponse") -> Iterable[bytes]:
    failed = {name: text for name, text in wrong.items() if text}
    status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
    start(f"{status.value} {status.phrase}", [_JSON])
    return [json.dumps(failed or {"ok": True}).encode() + b"\n"]
