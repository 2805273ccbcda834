"""The HTTP face: routes, and which failure becomes which status. It decides nothing else.

200: decided, also when the pod is refused. 400, 413: the caller sent no review.
5xx: we failed, and the registration's failurePolicy decides (ruling 33).
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect

import hami_dra
from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.templates import TemplateStore
from hami_dra.migration import Cards, NamespaceLimits, Policy
from hami_dra.migration.pod import NO_LIMITS
from webhook import handlers, review
from webhook.metrics import Metrics
from webhook.quota import NoQuotas, Quotas
from webhook.response import Admitted, Decision
from webhook.response import Response as Answer
from webhook.review import RequestError

LARGEST_BODY: Final = 4 * 2**20
"""Bytes; the API server's own limit for an object is 3 MiB (ruling 33)."""

_REVIEW_BODY: Final = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}
}

Decide = Callable[[review.Request], Awaitable[Answer]]
"""Decides on one kind of review."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What the app needs from the world.

    Attributes:
        templates: where templates are kept.
        policy: returns what a migration means here and now.
        cards: returns what is known of the cluster's cards now.
        limits: returns what the LimitRanges of a namespace insist on now.
        tell: passes on what was noticed of a pod that is admitted.
        quotas: what pods and claims must fit into.
        checks: what must hold before reviews are answered, by name.
        troubles: what needs a person although reviews are answered, by name; empty when nothing.
        collectors: what `/metrics` shows besides the reviews.
    """

    templates: TemplateStore
    policy: Callable[[], Policy] = Policy
    cards: Callable[[], Cards] = Cards
    limits: Callable[[str], NamespaceLimits] = lambda _namespace: NO_LIMITS
    tell: handlers.Tell = lambda _namespace, _pod, _notices: None
    quotas: Quotas = field(default_factory=NoQuotas)
    checks: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    troubles: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    collectors: Sequence[Collector] = ()

    def missing(self) -> list[str]:
        """List the checks that do not hold."""
        return [name for name, holds in self.checks.items() if not holds()]

    def degraded(self) -> dict[str, str]:
        """Return what needs a person, with the reason."""
        found = {name: trouble() for name, trouble in self.troubles.items()}
        return {name: reason for name, reason in found.items() if reason}


class BodyTooLargeError(RequestError):
    """The caller sent more than any review can be."""


class NotReadyError(Exception):
    """Something that a right answer needs is still missing."""


def create_app(dependencies: Dependencies) -> FastAPI:
    """Build the application; the schema can be generated but is not served."""
    app = FastAPI(
        title="hami-dra webhook",
        version=hami_dra.__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    metrics = Metrics(dependencies.collectors)
    mutation = _Reviews(dependencies, metrics, _mutating(dependencies))
    validation = _Reviews(dependencies, metrics, dependencies.quotas.judge)

    async def readyz() -> JSONResponse:
        missing, degraded = dependencies.missing(), dependencies.degraded()
        body = {"missing": missing, **({"degraded": degraded} if degraded else {})}
        return JSONResponse(body, status_code=503 if missing else 200)

    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def show_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    app.add_api_route("/mutate", mutation.post, methods=["POST"], openapi_extra=_REVIEW_BODY)
    app.add_api_route("/validate", validation.post, methods=["POST"], openapi_extra=_REVIEW_BODY)
    app.add_api_route("/healthz", healthz)
    app.add_api_route("/readyz", readyz)
    app.add_api_route("/metrics", show_metrics)
    return app


def _mutating(needs: Dependencies) -> Decide:
    """Return what decides on pods."""

    async def decide(asked: review.Request) -> Answer:
        return await handlers.mutate(
            asked,
            policy=needs.policy(),
            cards=needs.cards(),
            limits=needs.limits(asked.namespace),
            templates=needs.templates,
            tell=needs.tell,
            quotas=needs.quotas,
        )

    return decide


class _Reviews:
    """Answers one review after the other; the raw body goes past FastAPI's model layer."""

    def __init__(self, dependencies: Dependencies, metrics: Metrics, decide: Decide) -> None:
        self._needs = dependencies
        self._metrics = metrics
        self._decide = decide

    async def post(self, request: Request) -> Response:
        """Decide on what is being created."""
        started = perf_counter()
        entry: dict[str, Any] = {}
        try:
            answer = await self._answer(request, entry)
        except BodyTooLargeError as error:
            answer = _failure(413, Decision.BAD_REQUEST, error, entry)
        except (RequestError, ClientDisconnect) as error:
            answer = _failure(400, Decision.BAD_REQUEST, error, entry)
        except (NotReadyError, ApiError, UnreachableError) as error:
            answer = _failure(500, Decision.ERROR, error, entry)
        except Exception as error:  # noqa: BLE001 - the last resort: log it, let failurePolicy decide
            _log.exception("review failed", extra={"fields": entry})
            answer = _failure(500, Decision.ERROR, type(error).__name__, entry)
        self._record(entry, perf_counter() - started)
        return answer

    async def _answer(self, request: Request, entry: dict[str, Any]) -> Response:
        asked = review.parse(await _read(request))
        kind = "claim" if asked.creates_claim else "pod"
        entry |= {"uid": asked.uid, "namespace": asked.namespace, kind: asked.name}
        if missing := self._needs.missing():
            raise NotReadyError(f"not ready yet, waiting for: {', '.join(missing)}")
        response = await self._decide(asked)
        entry["decision"] = response.decision
        if isinstance(response, Admitted):
            entry["templates"] = response.templates
            for outcome in response.templates.values():
                self._metrics.templates.labels(outcome).inc()
        text = json.dumps(review.respond(asked.uid, response), separators=(",", ":"))
        return Response(text, media_type="application/json")

    def _record(self, entry: dict[str, Any], seconds: float) -> None:
        """Write the one line of a review; never what the pod contains."""
        self._metrics.reviews.labels(entry["decision"]).inc()
        self._metrics.seconds.observe(seconds)
        level = logging.ERROR if entry["decision"] is Decision.ERROR else logging.INFO
        _log.log(level, "review", extra={"fields": {**entry, "microseconds": round(seconds * 1e6)}})


async def _read(request: Request) -> bytes:
    """Read the body, but no more than a review can have."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > LARGEST_BODY:
            raise BodyTooLargeError(f"found more than {LARGEST_BODY} bytes, expected a review")
        chunks.append(chunk)
    return b"".join(chunks)


def _failure(
    status: int, decision: Decision, error: Exception | str, entry: dict[str, Any]
) -> PlainTextResponse:
    """Build the answer to a call that failed; the API server shows its text to the user.

    It does so for plain text only, and of our failures only for 500: to 503 it has a sentence of
    its own.
    """
    entry |= {"decision": decision, "error": str(error) or type(error).__name__}
    return PlainTextResponse(entry["error"], status_code=status)
