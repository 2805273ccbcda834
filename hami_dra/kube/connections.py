"""A pool of connections that end with it."""

import asyncio
from typing import Any, Final

import aiohttp

# An aborted connection is lost in the loop's next rounds; nobody shall wait for one that is not.
_LAST_S: Final = 5.0


class Pool(aiohttp.TCPConnector):
    """Connections that end with their pool, whatever the server does.

    The library says goodbye politely on one that is given up in use, as when a watch is left or a
    call is cancelled, and forgets it: a server that hangs would keep it open past the end.

    Args:
        **options: the library's.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 - see above
        super().__init__(**options)
        self._open: dict[asyncio.Future[None], Any] = {}

    async def _create_connection(self, *arguments: Any) -> Any:  # noqa: ANN401 - the library's
        made = await super()._create_connection(*arguments)
        if (closed := made.closed) is not None:
            self._open[closed] = made.transport
            closed.add_done_callback(self._forget)
        if self.closed:
            made.abort()
        return made

    async def close(self, *, abort_ssl: bool = False) -> None:
        """End every connection, also those that still say goodbye."""
        await super().close(abort_ssl=abort_ssl)
        left = dict(self._open)
        for transport in left.values():
            transport.abort()
        if left:
            await asyncio.wait(left, timeout=_LAST_S)

    def _forget(self, closed: asyncio.Future[None]) -> None:
        del self._open[closed]
        if not closed.cancelled():
            closed.exception()  # told to whoever used the connection
