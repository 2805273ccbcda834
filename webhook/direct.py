"""Answer posted reviews inside the connection, without the task and the messages of ASGI.

Parsing, limits, keep-alive, pipelining and the drain stay uvicorn's, and so does whatever is
unusual: a request with `Expect`, one that waits behind another, a client that does not read its
answers. Each of these takes the way of ASGI to the same endpoint (decision 0010).
"""

from collections.abc import Awaitable
from typing import Final

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from webhook.app import Application
from webhook.endpoint import LARGEST_BODY, Answer, BodyTooLargeError, ReviewEndpoint
from webhook.protocol import BoundedProtocol

_CONNECTION: Final = b"connection"
_CLOSE: Final = b"connection: close\r\n"


class DirectProtocol(BoundedProtocol):
    """One connection, whose reviews are answered as soon as they are whole."""

    _endpoint: ReviewEndpoint | None = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Begin to answer a request, of which the body may still be to come."""
        self._endpoint = None
        if isinstance(app, Application) and self._is_usual(cycle):
            self._endpoint = app.review_endpoint(cycle.scope)
        if self._endpoint is None:
            super()._start_asgi_task(cycle, app)

    def _is_usual(self, cycle: RequestResponseCycle) -> bool:
        """Tell whether a request just begins to arrive, and nothing has to be sent before it."""
        return (
            cycle is self.cycle
            and cycle.more_body
            and not cycle.body
            and not cycle.waiting_for_100_continue
            and not self.flow.write_paused
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the last request, which holds on to the connection and its buffers."""
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.on_response = _nothing

    def on_body(self, body: bytes) -> None:
        """Take in more of a body."""
        if self._endpoint is None or self.cycle.response_complete:
            super().on_body(body)
            return
        self.cycle.body += body
        if len(self.cycle.body) > LARGEST_BODY:
            self._reply(self.cycle, self._endpoint.refuse(BodyTooLargeError()))

    def on_message_complete(self) -> None:
        """Have the request whole, and answer it if it is a review."""
        super().on_message_complete()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None or self.cycle.response_complete:
            return
        answer = endpoint.answer(self.cycle.body)
        if isinstance(answer, Answer):
            self._reply(self.cycle, answer)
            return
        task = self.loop.create_task(self._reply_later(self.cycle, answer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _reply_later(self, cycle: RequestResponseCycle, answer: Awaitable[Answer]) -> None:
        self._reply(cycle, await answer)

    def _reply(self, cycle: RequestResponseCycle, answer: Answer) -> None:
        """Send an answer in one piece, and go on to the next request."""
        if cycle.disconnected:
            return
        lines = [STATUS_LINE[answer.status]]
        for name, value in cycle.default_headers:
            lines += (name, b": ", value, b"\r\n")
            cycle.keep_alive = cycle.keep_alive and name != _CONNECTION
        length = b"%d" % len(answer.body)
        lines += (b"content-type: ", answer.content_type, b"\r\ncontent-length: ", length, b"\r\n")
        if not cycle.keep_alive and _CONNECTION not in lines:
            lines.append(_CLOSE)
        cycle.response_started = cycle.response_complete = True
        self.transport.write(b"".join((*lines, b"\r\n", answer.body)))
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        cycle.on_response = _nothing


def _nothing() -> None:
    """Be called when a request is over that nobody waits for any more."""
