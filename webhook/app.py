"""The HTTP face: which path is answered by what. Reviews take the short way past FastAPI."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import hami_dra
from hami_dra.kube.templates import TemplateStore
from hami_dra.migration import Cards, NamespaceLimits, Policy
from hami_dra.migration.pod import NO_LIMITS
from webhook import handlers
from webhook.endpoint import LARGEST_BODY, ReviewEndpoint
from webhook.metrics import Metrics
from webhook.quota import NoQuotas, Quotas
from webhook.response import Response as Answer
from webhook.review import Request

__all__ = ["LARGEST_BODY", "Application", "Dependencies", "create_app"]


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


class Application(FastAPI):
    """FastAPI, except that posted reviews go straight to their endpoints (decision 0010)."""

    def __init__(self) -> None:
        super().__init__(
            title="hami-dra webhook",
            version=hami_dra.__version__,
            docs_url=None,
            redoc_url=None,
            openapi_url=None,
        )
        self._endpoints: dict[tuple[str, str], ReviewEndpoint] = {}

    def add_review_endpoint(self, path: str, endpoint: ReviewEndpoint) -> None:
        """Answer the reviews that are posted to a path."""
        self._endpoints["POST", path] = endpoint
        # The route refuses other methods there, as everywhere else.
        self.router.routes.append(Route(path, endpoint, methods=["POST"]))

    def review_endpoint(self, scope: Mapping[str, Any]) -> ReviewEndpoint | None:
        """Return what answers a request if it posts a review."""
        return self._endpoints.get((scope.get("method", ""), scope.get("path", "")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await (self.review_endpoint(scope) or super().__call__)(scope, receive, send)


def create_app(dependencies: Dependencies) -> Application:
    """Build the application."""
    app = Application()
    metrics = Metrics(dependencies.collectors)

    def mutate(asked: Request) -> Answer | Awaitable[Answer]:
        return handlers.mutate(
            asked,
            policy=dependencies.policy(),
            cards=dependencies.cards(),
            limits=dependencies.limits(asked.namespace),
            templates=dependencies.templates,
            quotas=dependencies.quotas,
            tell=dependencies.tell,
        )

    async def readyz() -> JSONResponse:
        missing, degraded = dependencies.missing(), dependencies.degraded()
        body = {"missing": missing, **({"degraded": degraded} if degraded else {})}
        return JSONResponse(body, status_code=503 if missing else 200)

    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def show_metrics() -> Response:
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    for path, decide in (("/mutate", mutate), ("/validate", dependencies.quotas.judge)):
        endpoint = ReviewEndpoint(decide, missing=dependencies.missing, metrics=metrics)
        app.add_review_endpoint(path, endpoint)
    app.add_api_route("/healthz", healthz)
    app.add_api_route("/readyz", readyz)
    app.add_api_route("/metrics", show_metrics)
    return app
