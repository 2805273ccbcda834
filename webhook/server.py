"""Run the application under TLS until a signal, and let what is being answered finish."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from webhook.certificate import Certificate
from webhook.direct import DirectProtocol

# The API server keeps idle connections for 90 s. Who closes earlier makes it write into a closing
# connection now and then, which a user sees as a failed admission (EOF).
KEEP_ALIVE_S: Final = 150
"""Seconds an idle connection is kept."""

DRAIN_S: Final = 15
"""Seconds for reviews in progress at shutdown; together with the delay before it below the usual
30 s before a pod is killed."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn, except that it ends in good order and says where it listens.

    Args:
        app: the application.
        certificate: loaded already.
        host: address to listen on; None for all.
        port: 0 lets the system choose.
        termination_delay_s: how long to serve on after the signal, until nobody sends us clients.
        announce: called with the URL once connections are accepted.
    """

    def __init__(
        self,
        app: FastAPI,
        certificate: Certificate,
        *,
        host: str | None,
        port: int,
        termination_delay_s: float = 0,
        announce: Callable[[str], None],
    ) -> None:
        self._announce = announce
        self._termination_delay_s = termination_delay_s
        self._hurried = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,
                host=host or "",
                port=port,
                http=DirectProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=DRAIN_S,
                ssl_context_factory=lambda _config, _default: certificate.context,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            self._announce(_url(self.servers[0].sockets[0].getsockname()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Go when nobody comes any more.

        A Service leads clients here for a while after the signal, and they hold connections. So
        both are served on, and each answer asks its client to connect anew, which is elsewhere.
        """
        _log.info("draining for %g s before the end", self._termination_delay_s)
        moving_on = (b"connection", b"close")
        self.server_state.default_headers = [*self.server_state.default_headers, moving_on]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), self._termination_delay_s)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; a second Ctrl-C waits for nobody."""
        super().handle_exit(sig, frame)
        if self.force_exit:
            self._hurried.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal; uvicorn would raise it again after the drain and so exit with 143."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def _url(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
