"""A client that says exactly these bytes over TLS, and reads what comes back."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Self

from hami_dra.lab.ports import LOOPBACK
from hami_dra.lab.replica import trusting_anybody
from hami_dra.migration import Json
from tests.webhook.reviews import gpu_pod, review_of

TIMEOUT_S = 30.0


class Wire:
    """One TLS connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def to(cls, port: int) -> Iterator[Self]:
        """Connect to a server on loopback."""
        with (
            socket.create_connection((LOOPBACK, port), timeout=TIMEOUT_S) as plain,
            trusting_anybody().wrap_socket(plain) as secured,
        ):
            yield cls(secured)

    def say(self, *parts: bytes) -> None:
        """Send bytes."""
        self._connection.sendall(b"".join(parts))

    def is_closed_within(self, seconds: float) -> bool:
        """Wait until the server ends the connection, and tell whether it did."""
        self._connection.settimeout(seconds)
        try:
            return self._connection.recv(1) == b""
        except TimeoutError:
            return False
        finally:
            self._connection.settimeout(TIMEOUT_S)

    def answer(self) -> tuple[int, bytes]:
        """Read one answer: its status and body."""
        response = HTTPResponse(self._connection)
        response.begin()
        return response.status, response.read()

    def review(self, body: bytes | None = None) -> Json:
        """Have a pod reviewed and return the answer."""
        self.say(request(review_body() if body is None else body))
        status, said = self.answer()
        assert status == 200, said
        found: Json = json.loads(said)["response"]
        return found


def review_body(**limits: str) -> bytes:
    """Write the review of a pod in the namespace `default`, as a dry run."""
    limits = limits or {"gpu": "1", "gpumem": "700"}
    return json.dumps(review_of(gpu_pod(**limits), namespace="default", dryRun=True)).encode()


def request(body: bytes, *headers: bytes, version: bytes = b"HTTP/1.1") -> bytes:
    """Write a request that carries a body."""
    lines = [
        b"POST /mutate?timeout=5s " + version,
        b"Host: webhook",
        b"Content-Type: application/json",
        b"Content-Length: " + str(len(body)).encode(),
        *headers,
    ]
    return b"\r\n".join([*lines, b"", body])
