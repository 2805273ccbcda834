"""Answer reviews over plain ASGI: read, parse, decide, record, send.

This is the path of every pod, so nothing of FastAPI lies in it (decision 0010). It knows which
failure becomes which status and decides nothing else. 200: decided, also when the pod is refused.
400, 413: the caller sent no review. 5xx: we failed, and the registration's failurePolicy decides
(ruling 33).
"""

import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

from pydantic_core import to_json
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.logs import write
from webhook import review
from webhook.metrics import Metrics
from webhook.response import Admitted, Decision, Response
from webhook.review import Request, RequestError

LARGEST_BODY: Final = 4 * 2**20
"""Bytes; the API server's own limit for an object is 3 MiB (ruling 33)."""

Decide = Callable[[Request], Awaitable[Response]]
"""What answers a review."""

_JSON: Final = (b"content-type", b"application/json")
_TEXT: Final = (b"content-type", b"text/plain; charset=utf-8")
_OK: Final = 200

_log = logging.getLogger(__name__)


class BodyTooLargeError(RequestError):
    """The caller sent more than any review can be."""


class NotReadyError(Exception):
    """Something that a right answer needs is still missing."""


class ReviewEndpoint:
    """An ASGI application that answers the reviews posted to one path.

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
        """Answer one review."""
        started = perf_counter()
        entry: dict[str, Any] = {}
        status, body = await self._answer(receive, entry)
        self._record(entry, perf_counter() - started)
        kind = _JSON if status == _OK else _TEXT
        headers = [kind, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, receive: Receive, entry: dict[str, Any]) -> tuple[int, bytes]:
        """Return status and body, and fill in what the log says."""
        try:
            return _OK, await self._review(receive, entry)
        except BodyTooLargeError as error:
            return 413, _failure(Decision.BAD_REQUEST, error, entry)
        except (RequestError, ClientDisconnect) as error:
            return 400, _failure(Decision.BAD_REQUEST, error, entry)
        except (NotReadyError, ApiError, UnreachableError) as error:
            return 500, _failure(Decision.ERROR, error, entry)
        except Exception as error:  # noqa: BLE001 - the last resort: log it, let failurePolicy decide
            _log.exception("review failed", extra={"fields": entry})
            return 500, _failure(Decision.ERROR, type(error).__name__, entry)

    async def _review(self, receive: Receive, entry: dict[str, Any]) -> bytes:
        asked = review.parse(await _read(receive))
        entry["uid"] = asked.uid
        entry["namespace"] = asked.namespace
        entry["claim" if asked.creates_claim else "pod"] = asked.name
        if missing := self._missing():
            raise NotReadyError(f"not ready yet, waiting for: {', '.join(missing)}")
        response = await self._decide(asked)
        entry["decision"] = response.decision
        if isinstance(response, Admitted):
            entry["templates"] = response.templates
            for outcome in response.templates.values():
                self._metrics.ensured[outcome].inc()
        return to_json(review.respond(asked.uid, response))

    def _record(self, entry: dict[str, Any], seconds: float) -> None:
        """Write the one line of a review; never what the pod contains."""
        decision = entry["decision"]
        self._metrics.decided[decision].inc()
        self._metrics.seconds.observe(seconds)
        entry["microseconds"] = round(seconds * 1e6)
        level = logging.ERROR if decision is Decision.ERROR else logging.INFO
        write(_log, level, "review", entry)


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
            raise BodyTooLargeError(f"found more than {LARGEST_BODY} bytes, expected a review")
        chunks.append(chunk)
        is_whole = not message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _failure(decision: Decision, error: Exception | str, entry: dict[str, Any]) -> bytes:
    """Build the answer to a call that failed; the API server shows its text to the user.

    It does so for plain text only, and of our failures only for 500: to 503 it has a sentence of
    its own.
    """
    entry |= {"decision": decision, "error": str(error) or type(error).__name__}
    return str(entry["error"]).encode(errors="replace")
