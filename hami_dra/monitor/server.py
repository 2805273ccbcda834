"""Serve a page, metrics and probes over HTTP, within bounds: whoever asks cannot hold us up.

A request has a whole deadline and few bytes, there are few at one time, and each ends its
connection.
"""

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from socketserver import TCPServer, ThreadingMixIn
from typing import IO, TYPE_CHECKING, Any, Final, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

REQUEST_S: Final = 5.0
"""Until a request must be there, and again until its answer must be taken."""

CONNECTIONS: Final = 64
"""Requests at one time; one more waits for a moment and is then turned away."""

_PATIENCE_S: Final = 1.0
_HEAD_BYTES: Final = 16 * 1024
_PIECE: Final = 4096

_HTML: Final = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
)
_JSON: Final = (("Content-Type", "application/json"),)

_Answer = tuple[str, list[tuple[str, str]], bytes]


class Pages:
    """Answers requests, as a WSGI application.

    Args:
        registry: what /metrics shows.
        page: makes what / shows.
        problems: what does not work, by name, which /readyz tells; empty texts for what does.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        page: Callable[[], str],
        problems: Callable[[], Mapping[str, str]],
    ) -> None:
        self._metrics = make_wsgi_app(registry)
        self._page = page
        self._problems = problems

    def __call__(self, environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        """Answer one request."""
        method = environ["REQUEST_METHOD"]
        status, headers, body = (
            self._found({**environ, "REQUEST_METHOD": "GET"})
            if method in {"GET", "HEAD"}
            else ("405 Method Not Allowed", [*_JSON, ("Allow", "GET, HEAD")], b"")
        )
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    def _found(self, environ: "WSGIEnvironment") -> _Answer:
        match environ.get("PATH_INFO"):
            case "/":
                return "200 OK", list(_HTML), self._page().encode()
            case "/metrics":
                return self._scraped(environ)
            case "/healthz":
                return "200 OK", list(_JSON), b'{"ok": true}\n'
            case "/readyz":
                # Ready even so: what cannot be read now must not hide the rest.
                wrong = {name: text for name, text in self._problems().items() if text}
                return "200 OK", list(_JSON), json.dumps({"ok": not wrong, **wrong}).encode()
        text = b'{"error": "found another path than /, /metrics, /healthz and /readyz"}\n'
        return "404 Not Found", list(_JSON), text

    def _scraped(self, environ: "WSGIEnvironment") -> _Answer:
        noted: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]]) -> None:
            noted.extend((status, headers))

        body = b"".join(self._metrics(environ, start))
        return noted[0], noted[1], body


class Server:
    """Serves an application in threads.

    Args:
        address: to listen on; empty for all.
        port: 0 lets the system choose.
        application: answers.
        request_s: see `REQUEST_S`.
        connections: see `CONNECTIONS`.
    """

    def __init__(
        self,
        address: str,
        port: int,
        application: Pages,
        *,
        request_s: float = REQUEST_S,
        connections: int = CONNECTIONS,
    ) -> None:
        host, family = _listener(address)

        class Bounded(_Server):
            address_family = family
            room = threading.BoundedSemaphore(connections)
            patience_s = request_s

        self._server = make_server(
            host, port, application, server_class=Bounded, handler_class=_Handler
        )

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return self._server.server_port

    def serve(self, look_s: float = 3600) -> None:
        """Answer until stopped, which is noticed after as many seconds."""
        self._server.serve_forever(look_s)

    def stop(self) -> None:
        """Answer no more; not to be called by the thread that serves."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    room: threading.BoundedSemaphore
    patience_s: float

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Begin with a request, if there is room."""
        if not self.room.acquire(timeout=_PATIENCE_S):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system gives no more threads
            self.room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer, and make room again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing of clients that went away."""

    def server_bind(self) -> None:
        """Bind, without asking a name server for our name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "hami-dra-monitor", self.socket.getsockname()[1]
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    server: _Server

    def setup(self) -> None:
        """Take the whole head of a request, or nothing."""
        super().setup()
        self.rfile.close()
        patience_s = self.server.patience_s
        self.rfile = io.BytesIO(_head(self.connection, time.monotonic() + patience_s))
        self.connection.settimeout(patience_s)

    def handle(self) -> None:
        """Answer what the head asks for; what follows it is not read."""
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline or not self.parse_request():
            return
        output = cast("IO[bytes]", self.wfile)
        handler = ServerHandler(io.BytesIO(), output, self.get_stderr(), self.get_environ())
        handler.request_handler = self  # type: ignore[attr-defined] # as the base class does
        handler.run(cast("WSGIApplication", self.server.get_app()))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Keep probes and scrapes out of the log."""


def _head(connection: socket.socket, end: float) -> bytes:
    """Read up to the empty line that ends a head; nothing if that does not come in time."""
    data = b""
    try:
        while b"\r\n\r\n" not in data and b"\n\n" not in data:
            left = end - time.monotonic()
            if left <= 0 or len(data) > _HEAD_BYTES:
                return b""
            connection.settimeout(left)
            if not (piece := connection.recv(_PIECE)):
                return b""
            data += piece
    except OSError:
        return b""
    return data


def _listener(address: str) -> tuple[str, socket.AddressFamily]:
    """Choose what listens; a pod may have an address of either family."""
    if not address:
        both = socket.has_dualstack_ipv6()
        return ("::", socket.AF_INET6) if both else ("0.0.0.0", socket.AF_INET)  # noqa: S104
    return address, socket.AF_INET6 if ":" in address else socket.AF_INET
