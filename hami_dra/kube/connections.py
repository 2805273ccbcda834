"""A pool of connections that end with it."""

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

import aiohttp

# A connection that is ended is lost within the next rounds; nobody waits for one that is not.
_LAST_S: Final = 5.0
_ROUNDS: Final = 50


class Pool(aiohttp.TCPConnector):
    """Connections that end with their pool, whatever the server does.

    The library says goodbye politely on one that is given up in use, as when a watch is left or a
    call is cancelled, and forgets it: a server that hangs would keep it open past the end. The loop
    in turn may forget one that is given up while it is made.

    Args:
        **options: the library's.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - see above
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._making: set[asyncio.Future[None]] = set()
        self._open: dict[asyncio.Future[None], Any] = {}
        super().__init__(**options, socket_factory=self._socket)

    async def _create_connection(self, *arguments: Any) -> Any:  # noqa: ANN401 - the library's
        making = asyncio.get_running_loop().create_future()
        self._making.add(making)
        try:
            made = await super()._create_connection(*arguments)
        finally:
            self._making.discard(making)
            making.set_result(None)
        if (closed := made.closed) is not None:
            self._open[closed] = made.transport
            closed.add_done_callback(self._forget)
        if self.closed:
            made.abort()
        return made

    async def close(self, *, abort_ssl: bool = False) -> None:
        """End every connection, also those that still say goodbye and those in the making."""
        await super().close(abort_ssl=abort_ssl)
        for transport in tuple(self._open.values()):
            transport.abort()
        for line in tuple(self._sockets):
            _end(line)
        if left := {*self._making, *self._open}:
            await asyncio.wait(left, timeout=_LAST_S)
        for _ in range(_ROUNDS):
            left_open = [line for line in tuple(self._sockets) if _end(line)]
            if not left_open:
                return
            await asyncio.sleep(0)

    def _forget(self, closed: asyncio.Future[None]) -> None:
        del self._open[closed]
        if not closed.cancelled():
            closed.exception()  # told to whoever used the connection

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        if self.closed:
            raise OSError("the session is closed")
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made


def _end(line: socket.socket) -> bool:
    """Have whoever owns a socket notice its end; tell whether it is open still."""
    if line.fileno() < 0:
        return False
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    return True
