"""Answer reviews: parse, decide, record, encode.

This is the path of every pod, so nothing of FastAPI lies in it (decision 0010). It knows which
failure becomes which status and decides nothing else. 200: decided, also when the pod is refused.
400, 413: the caller sent no review. 5xx: we failed, and the registration's failurePolicy decides
(ruling 33).
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.templates import Outcome
from hami_dra.logs import write
from webhook import review
from webhook.metrics import Metrics
from webhook.response import Admitted, Decision, Refused, Response
from webhook.review import Request, RequestError

LARGEST_BODY: Final = 4 * 2**20
"""Bytes; the API server's own limit for an object is 3 MiB (ruling 33)."""

Decide = Callable[[Request], Response | Awaitable[Response]]
"""What answers a review, at once where nothing has to be waited for."""

_OK: Final = 200

_log = logging.getLogger(__name__)


class BodyTooLargeError(RequestError):
    """The caller sent more than any review can be."""

    def __init__(self) -> None:
        super().__init__(f"found more than {LARGEST_BODY} bytes, expected a review")


class NotReadyError(Exception):
    """Something that a right answer needs is still missing."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back.

    Attributes:
        status: of HTTP.
        body: a review as JSON when the status is 200, else why there is none, as UTF-8 text.
    """

    status: int
    body: bytes

    @property
    def content_type(self) -> bytes:
        """Return the media type; the API server shows the text of a failure only if it is plain."""
        return b"application/json" if self.status == _OK else b"text/plain; charset=utf-8"


@dataclass(slots=True)
class _Call:
    """A review that is being answered: when it began, and what the log will say of it."""

    started: float
    entry: dict[str, Any]


class ReviewEndpoint:
    """Answers the reviews posted to one path; an ASGI application too.

    Args:
        decide: answers a review.
        missing: lists what must still come about before reviews are answered.
        metrics: counts reviews and times them.
    """

    def __init__(
        self, decide: Decide, *, missing: Callable[[], list[str]], metrics: Metrics
    ) -> None:
        self._decide = decide
        self._missing = missing
        self._metrics = metrics

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one review that comes and goes in messages of ASGI."""
        try:
            answer = self.answer(await _read(receive))
        except (BodyTooLargeError, ClientDisconnect) as error:
            answer = self.refuse(error)
        if not isinstance(answer, Answer):
            answer = await answer
        headers = [
            (b"content-type", answer.content_type),
            (b"content-length", b"%d" % len(answer.body)),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def answer(self, body: bytes | bytearray) -> Answer | Awaitable[Answer]:
        """Answer a review from its bytes; what is awaitable has to wait for others."""
        call = _Call(perf_counter(), {})
        try:
            asked = self._parse(body, call.entry)
            response = self._decide(asked)
            if isinstance(response, (Admitted, Refused)):
                return self._answered(call, asked, response)
        except Exception as error:  # noqa: BLE001 - each becomes an answer
            return self._failed(call, error)
        return self._later(call, asked, response)

    def refuse(self, error: Exception) -> Answer:
        """Answer a call that did not get as far as to be a review."""
        return self._failed(_Call(perf_counter(), {}), error)

    async def _later(self, call: _Call, asked: Request, response: Awaitable[Response]) -> Answer:
        try:
            return self._answered(call, asked, await response)
        except Exception as error:  # noqa: BLE001 - each becomes an answer
            return self._failed(call, error)

    def _parse(self, body: bytes | bytearray, entry: dict[str, Any]) -> Request:
        asked = review.parse(body)
        entry["uid"] = asked.uid
        entry["namespace"] = asked.namespace
        entry["claim" if asked.creates_claim else "pod"] = asked.name
        if missing := self._missing():
            raise NotReadyError(f"not ready yet, waiting for: {', '.join(missing)}")
        return asked

    def _answered(self, call: _Call, asked: Request, response: Response) -> Answer:
        """Record a decision and render it."""
        body = review.encode(asked.uid, response)
        decision = call.entry["decision"] = response.decision
        outcomes: Iterable[Outcome] = ()
        if isinstance(response, Admitted):
            call.entry["templates"] = response.templates
            outcomes = response.templates.values()
        self._record(call, decision, outcomes)
        return Answer(_OK, body)

    def _failed(self, call: _Call, error: Exception) -> Answer:
        """Record a failure and render it for the user, to whom the API server shows its text.

        It does so of our failures only for 500: to 503 it has a sentence of its own.
        """
        status, decision, text = _failure(error)
        if status is None:
            _log.exception("review failed", exc_info=error, extra={"fields": call.entry})
        call.entry |= {"decision": decision, "error": text}
        self._record(call, decision)
        return Answer(status or 500, text.encode(errors="replace"))

    def _record(self, call: _Call, decision: Decision, outcomes: Iterable[Outcome] = ()) -> None:
        """Count a review and write its one line; never what the pod contains."""
        seconds = perf_counter() - call.started
        self._metrics.count(decision, seconds, outcomes)
        call.entry["microseconds"] = round(seconds * 1e6)
        level = logging.ERROR if decision is Decision.ERROR else logging.INFO
        write(_log, level, "review", call.entry)


def _failure(error: Exception) -> tuple[int | None, Decision, str]:
    """Return status, decision and text of a failure; no status if nobody foresaw it."""
    text = str(error) or type(error).__name__
    match error:
        case BodyTooLargeError():
            return 413, Decision.BAD_REQUEST, text
        case RequestError() | ClientDisconnect():
            return 400, Decision.BAD_REQUEST, text
        case NotReadyError() | ApiError() | UnreachableError():
            return 500, Decision.ERROR, text
        case _:
            return None, Decision.ERROR, type(error).__name__


async def _read(receive: Receive) -> bytes:
    """Read the body, but no more than a review can have."""
    chunks: list[bytes] = []
    size = 0
    is_whole = False
    while not is_whole:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > LARGEST_BODY:
            raise BodyTooLargeError
        chunks.append(chunk)
        is_whole = not message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
