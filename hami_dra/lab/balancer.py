"""One address in front of several, as a Service is: connections go round robin, TLS passes through.

Only new connections are balanced. One that is open stays with its endpoint after that was removed,
and ends when the endpoint ends it; a connection to an endpoint that is gone is reset. Both are what
kube-proxy does, so a webhook that cannot be replaced without a failed call fails here too.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from hami_dra.lab.ports import LOOPBACK

T = TypeVar("T")

_CHUNK: Final = 2**16
_IP_FREEBIND: Final = 15  # Linux's; Python has no name for it


class Balancer:
    """A TCP balancer in front of ports of loopback, in a thread of its own.

    Args:
        address: where it listens; an address that no interface has yet will do.
        port: default is a free one.

    Attributes:
        port: where it listens.
    """

    def __init__(self, address: str = LOOPBACK, port: int = 0) -> None:
        self.port = port
        self._address = address
        self._endpoints: list[int] = []
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Return where it listens, for servers that speak TLS."""
        return f"https://{self._address}:{self.port}"

    @property
    def endpoints(self) -> tuple[int, ...]:
        """Return the ports that new connections go to."""
        return tuple(self._endpoints)

    def add(self, port: int) -> None:
        """Send new connections to a port of loopback too."""
        self._endpoints = [*self._endpoints, port]

    def remove(self, port: int) -> None:
        """Send it no new connection; those that are open stay."""
        self._endpoints = [each for each in self._endpoints if each != port]

    def drop(self) -> None:
        """End all open connections, so that clients connect anew and are balanced again."""
        self._run(self._drop())

    @contextmanager
    def serving(self) -> Iterator["Balancer"]:
        """Listen meanwhile.

        Raises:
            OSError: if somebody else does already.
        """
        line = self._listening()
        thread = threading.Thread(target=self._loop.run_forever, name="balancer")
        thread.start()
        server = self._run(asyncio.start_server(self._accept, sock=line))
        try:
            yield self
        finally:
            self._run(self._end(server))
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _listening(self) -> socket.socket:
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.setsockopt(socket.SOL_IP, _IP_FREEBIND, 1)
        try:
            line.bind((self._address, self.port))
        except OSError:
            line.close()
            self._loop.close()
            raise
        self.port = line.getsockname()[1]
        return line

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        await self._drop()

    async def _drop(self) -> None:
        open_ones = tuple(self._connections)
        for task in open_ones:
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._carry(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join a connection with an endpoint until both ways have ended or one is lost."""
        try:
            inner_reader, inner_writer = await self._dial()
            try:
                await _both(_copy(reader, inner_writer), _copy(inner_reader, writer))
            finally:
                inner_writer.transport.abort()
        except OSError:
            _reset(writer)
        finally:
            writer.transport.abort()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        endpoints = self._endpoints
        if not endpoints:
            raise ConnectionRefusedError
        self._turn += 1
        return await asyncio.open_connection(LOOPBACK, endpoints[self._turn % len(endpoints)])


def _reset(writer: asyncio.StreamWriter) -> None:
    """Have the connection end with a reset, since a polite end would be a lie."""
    at_once = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)


async def _both(*ways: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Carry bytes one way until that way ends, and pass the end on."""
    while chunk := await source.read(_CHUNK):
        sink.write(chunk)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
