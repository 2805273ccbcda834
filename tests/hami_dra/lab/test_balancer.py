"""The balancer does to connections what a Service does: new ones move, open ones stay."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from hami_dra.lab.balancer import Balancer
from hami_dra.lab.ports import LOOPBACK, free_ports


class Endpoint:
    """A server that greets each connection with its name and then echoes."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._server = socket.create_server((LOOPBACK, 0))
        self.port: int = self._server.getsockname()[1]

    @contextmanager
    def serving(self) -> Iterator["Endpoint"]:
        """Accept meanwhile."""
        thread = Thread(target=self._accept)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            connection.sendall(self._name)
            while said := connection.recv(100):
                connection.sendall(said)


@contextmanager
def dialled(balancer: Balancer) -> Iterator[tuple[socket.socket, bytes]]:
    with socket.create_connection((LOOPBACK, balancer.port), timeout=10) as connection:
        yield connection, connection.recv(100)


def greeted(balancer: Balancer) -> bytes:
    with dialled(balancer) as (_, greeting):
        return greeting


def test_new_connections_go_round_robin() -> None:
    with (
        Endpoint(b"a").serving() as a,
        Endpoint(b"b").serving() as b,
        Balancer().serving() as balancer,
    ):
        balancer.add(a.port)
        balancer.add(b.port)

        assert sorted(greeted(balancer) for _ in range(4)) == [b"a", b"a", b"b", b"b"]


def test_an_open_connection_stays_with_an_endpoint_that_was_removed() -> None:
    with (
        Endpoint(b"a").serving() as a,
        Endpoint(b"b").serving() as b,
        Balancer().serving() as balancer,
    ):
        balancer.add(a.port)
        with dialled(balancer) as (connection, greeting):
            balancer.add(b.port)
            balancer.remove(a.port)
            connection.sendall(b"still there?")

            assert (greeting, connection.recv(100)) == (b"a", b"still there?")
        assert {greeted(balancer) for _ in range(3)} == {b"b"}


def test_an_end_is_passed_on_after_everything_before_it() -> None:
    with Endpoint(b"a").serving() as a, Balancer().serving() as balancer:
        balancer.add(a.port)
        with dialled(balancer) as (connection, _):
            connection.sendall(b"last")
            connection.shutdown(socket.SHUT_WR)

            assert (connection.recv(100), connection.recv(100)) == (b"last", b"")


def test_a_connection_to_an_endpoint_that_is_gone_is_reset() -> None:
    with Balancer().serving() as balancer:
        balancer.add(free_ports(1)[0])

        with pytest.raises(ConnectionResetError):
            greeted(balancer)


def test_a_connection_without_any_endpoint_is_reset() -> None:
    with Balancer().serving() as balancer, pytest.raises(ConnectionResetError):
        greeted(balancer)
