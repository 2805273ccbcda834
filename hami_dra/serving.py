"""Serve a WSGI application over HTTP within bounds: whoever asks cannot hold a node's process up.

A request has a whole deadline and few bytes, there are few at one time, and each ends its
connection. One more takes the place of who has asked for nothing yet, so that clients which hold
connections do not keep a kubelet from its probes. Nothing wakes up while nobody asks.
"""

import contextlib
import io
import socket
import threading
import time
from socketserver import TCPServer, ThreadingMixIn
from typing import IO, TYPE_CHECKING, Any, Final, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

REQUEST_S: Final = 5.0
"""Until a request must be there, and again until its answer must be taken."""

CONNECTIONS: Final = 64
"""Requests at one time; one more ends the one that has been waited for longest."""

_PATIENCE_S: Final = 1.0
_FOREVER_S: Final = 3600.0
_HEAD_BYTES: Final = 16 * 1024
_PIECE: Final = 4096


class Server:
    """Serves an application in threads.

    Args:
        address: to listen on; empty for all.
        port: 0 lets the system choose.
        application: answers.
        request_s: see `REQUEST_S`.
        connections: see `CONNECTIONS`.

    Raises:
        OSError: if nobody can listen there.
    """

    def __init__(
        self,
        address: str,
        port: int,
        application: "WSGIApplication",
        *,
        request_s: float = REQUEST_S,
        connections: int = CONNECTIONS,
    ) -> None:
        host, family = _listener(address)

        class Bounded(_Server):
            address_family = family
            room = _Room(connections)
            patience_s = request_s

        try:
            self._server = make_server(
                host, port, application, server_class=Bounded, handler_class=_Handler
            )
        except OSError as error:
            where = f"port {port} of {address or 'every address'}"
            raise OSError(f"cannot listen on {where}: {error.strerror}; choose another") from error

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return self._server.server_port

    def serve(self) -> None:
        """Answer until stopped."""
        self._server.serve_forever(_FOREVER_S)

    def stop(self) -> None:
        """Answer no more; not to be called by the thread that serves."""
        # Wakes that thread: a socket that listens no more can always be read.
        self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()


class _Room:
    """The connections of the moment, and which of them has to go for another one.

    Args:
        places: how many there may be.
    """

    def __init__(self, places: int) -> None:
        self._free = threading.BoundedSemaphore(places)
        self._lock = threading.Lock()
        # In the order in which they came; whether all that is asked for is there.
        self._whole: dict[socket.socket, bool] = {}

    def enter(self, connection: socket.socket) -> bool:
        """Take a place, if need be that of another one; False if that does not go either."""
        if not self._free.acquire(blocking=False):
            self._end_one()
            if not self._free.acquire(timeout=_PATIENCE_S):
                return False
        with self._lock:
            self._whole[connection] = False
        return True

    def is_whole(self, connection: socket.socket) -> None:
        """Note that a request is there, and only its answer is waited for."""
        with self._lock:
            if connection in self._whole:
                self._whole[connection] = True

    def leave(self, connection: socket.socket) -> None:
        """Give a place back."""
        with self._lock:
            self._whole.pop(connection, None)
        self._free.release()

    def _end_one(self) -> None:
        """End the oldest that has not asked yet, or else the oldest; its thread gives its place."""
        with self._lock:
            # False comes before True, and of equals the first is taken.
            if (oldest := min(self._whole, key=self._whole.__getitem__, default=None)) is None:
                return
            del self._whole[oldest]
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    room: _Room
    patience_s: float

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Begin with a request, if there is room."""
        if not self.room.enter(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system gives no more threads
            self.room.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer, and make room again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Say nothing of clients that went away."""

    def server_bind(self) -> None:
        """Bind, without asking a name server for our name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "hami-dra", self.socket.getsockname()[1]
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    server: _Server

    def setup(self) -> None:
        """Take the whole head of a request, or nothing."""
        super().setup()
        self.rfile.close()
        patience_s = self.server.patience_s
        self.rfile = io.BytesIO(_head(self.connection, time.monotonic() + patience_s))
        self.server.room.is_whole(self.connection)
        self.connection.settimeout(patience_s)

    def handle(self) -> None:
        """Answer what the head asks for; what follows it is not read."""
        self.raw_requestline = self.rfile.readline()
        if not self.raw_requestline or not self.parse_request():
            return
        output = cast("IO[bytes]", self.wfile)
        handler = _Answer(io.BytesIO(), output, self.get_stderr(), self.get_environ())
        handler.request_handler = self  # type: ignore[attr-defined] # as the base class does
        handler.run(cast("WSGIApplication", self.server.get_app()))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Keep probes and scrapes out of the log."""


class _Answer(ServerHandler):
    def log_exception(self, exc_info: Any) -> None:  # noqa: ANN401 - the library's
        """Say nothing of clients that do not take their answer."""
        if not isinstance(exc_info[1], OSError):
            super().log_exception(exc_info)


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
