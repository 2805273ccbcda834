"""HTTP/1.1 as uvicorn speaks it, but a client can neither fill our memory nor hold us for ever.

uvicorn bounds neither the head of a request nor the time that a client takes to send one.
"""

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_HEAD: Final = 64 * 2**10
"""Bytes of request line and headers; the API server sends a few hundred."""

RECEIVE_S: Final = 30.0
"""Seconds for a request to arrive whole; the API server gives up after as many at the latest."""

GOODBYE_S: Final = 1.0
"""Seconds for a client to close after us; one that has vanished never does."""

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\n"
    b"connection: close\r\n"
    b"\r\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """One connection of a client that is not to be trusted with our resources."""

    _head: int | None = 0
    _is_refused = False
    _is_receiving = False
    _deadline: asyncio.TimerHandle | None = None
    _idle_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Expect a request as soon as on a connection that had one."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._look_again(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        self._arrived()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes in, unless they make a head too long to be one."""
        if self._is_refused:
            return
        if self._head is not None:
            self._head += len(data)
        idle_since = self._idle_since
        super().data_received(data)
        if self._idle_since is None and not self._is_receiving and not self._is_answering():
            # What makes no request, such as an empty line, prolongs nothing.
            self._idle_since = idle_since
        if self._head is not None and self._head > LARGEST_HEAD:
            # Closing at once would reset the connection, and the answer with it: the client, which
            # still sends, closes when it has read it, or the deadline does.
            self._is_refused = True
            self.transport.write(_TOO_LARGE)
        if self._is_receiving and self._deadline is None:
            # Most requests arrive at once and need no timer.
            self._deadline = self.loop.call_later(RECEIVE_S, self.transport.abort)

    def on_message_begin(self) -> None:
        """Begin to receive a request."""
        super().on_message_begin()
        self._head = 0
        self._is_receiving = True

    def on_headers_complete(self) -> None:
        """Go on to the body, which the application bounds."""
        self._head = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Have the request whole."""
        self._arrived()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on to the next request, or to the end."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            self._leave_if_closing()
            return
        # As uvicorn's, except that no timer is set anew for each answer.
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        """End a connection that has been idle for too long, or look again when it may have been."""
        left: float = self.timeout_keep_alive
        if self._idle_since is not None:
            left += self._idle_since - self.loop.time()
        if left > 0:
            self._look_again(left)
        else:
            super().timeout_keep_alive_handler()

    def shutdown(self) -> None:
        """Close now, or after what is being answered."""
        # Closing it twice would take the way to abort it from asyncio's transport.
        if not self.transport.is_closing():
            super().shutdown()
            self._leave_if_closing()

    def _leave_if_closing(self) -> None:
        """Do not wait for ever for a client's goodbye."""
        if self.transport.is_closing():
            self.loop.call_later(GOODBYE_S, self.transport.abort)

    def _is_answering(self) -> bool:
        # There is none before the first request, which uvicorn's types do not say.
        return not getattr(self.cycle, "response_complete", True)

    def _look_again(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _unset_keepalive_if_required(self) -> None:
        """Be busy; the timer stays and finds that out."""
        self._idle_since = None

    def _arrived(self) -> None:
        self._is_receiving = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
