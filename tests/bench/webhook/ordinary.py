"""The competitor that a user of our stack would write: FastAPI with pydantic models.

The same migration, template store and log line as the webhook has; only the way there differs, and
the metrics are the library's. Run as a module, it prints where it listens as the standalone webhook
does.
"""

import base64
import json
import logging
import sys
from time import perf_counter
from typing import Any

import typer
import uvloop
from fastapi import FastAPI
from prometheus_client import Counter, Histogram
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from hami_dra.kube.templates import MemoryTemplates
from hami_dra.logs import LogFormat, configure
from hami_dra.migration import Cards, Policy, RejectedPod, migrate
from webhook.response import Decision
from webhook.server import Server
from webhook.standalone import LOOPBACK, instructions, made_up_certificate

_log = logging.getLogger("ordinary")

_REVIEWS = Counter("ordinary_reviews", "Reviews by decision.", ["decision"])
_SECONDS = Histogram("ordinary_review_seconds", "Time of a review.")
_TEMPLATES = Counter("ordinary_templates", "Templates by outcome.", ["outcome"])


class Model(BaseModel):
    """Fields in Python's case, JSON in Kubernetes'."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")


class Kind(Model):
    """A group, a version and a kind."""

    group: str = ""
    version: str
    kind: str


class Resource(Model):
    """A group, a version and a resource."""

    group: str = ""
    version: str
    resource: str


class AdmissionRequest(Model):
    """What is asked."""

    uid: str
    kind: Kind
    resource: Resource
    namespace: str
    operation: str
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = None


class Status(Model):
    """Why not."""

    code: int
    message: str


class AdmissionResponse(Model):
    """What is answered."""

    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: str | None = None
    warnings: list[str] | None = None
    status: Status | None = None


class AdmissionReview(Model):
    """The envelope, in both directions."""

    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"
    request: AdmissionRequest | None = None
    response: AdmissionResponse | None = None


def create_app() -> FastAPI:
    """Build the application."""
    app = FastAPI()
    policy, cards, templates = Policy(), Cards(), MemoryTemplates()

    @app.post("/mutate", response_model_exclude_none=True)
    async def mutate(review: AdmissionReview) -> AdmissionReview:
        started = perf_counter()
        asked = review.request
        if asked is None:
            raise ValueError("found no request")
        try:
            migration = migrate(asked.object or {}, policy, cards)
        except RejectedPod as error:
            refused = Status(code=422, message=str(error))
            return _answer(AdmissionResponse(uid=asked.uid, allowed=False, status=refused))
        for template in migration.templates:
            outcome = await templates.ensure(asked.namespace, template)
            _TEMPLATES.labels(outcome).inc()
        seconds = perf_counter() - started
        _REVIEWS.labels(Decision.MUTATED).inc()
        _SECONDS.observe(seconds)
        fields = {"uid": asked.uid, "namespace": asked.namespace, "microseconds": seconds * 1e6}
        _log.info("review", extra={"fields": fields})
        patch = base64.b64encode(json.dumps(migration.patch).encode()).decode()
        return _answer(
            AdmissionResponse(uid=asked.uid, allowed=True, patch_type="JSONPatch", patch=patch)
        )

    return app


def _answer(response: AdmissionResponse) -> AdmissionReview:
    return AdmissionReview(response=response)


async def serve() -> None:
    """Serve with a certificate made on the fly until a signal."""
    with made_up_certificate(LOOPBACK) as (certificate, authority_file):
        await Server(
            create_app(),
            certificate,
            host=LOOPBACK,
            port=0,
            announce=lambda url: typer.echo(instructions(url, authority_file)),
        ).serve()


if __name__ == "__main__":
    configure(LogFormat.JSON, "info", sys.stderr)
    uvloop.run(serve())
