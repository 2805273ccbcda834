"""Ten thousand damaged reviews: each is answered, and none makes the webhook fail."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings

from hami_dra.kube.templates import MemoryTemplates
from tests.pods import CARDS, POLICY
from tests.webhook.fuzz import BATCH, drawn_bodies
from tests.webhook.reviews import get
from webhook.app import Dependencies, create_app

REVIEWS = 10_000
DECISIONS = re.compile(r'^hami_dra_webhook_reviews_total\{decision="(\w+)"\} (\S+)$', re.MULTILINE)


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    """One application for all of it, which says nothing about each review."""
    logging.disable(logging.INFO)
    fuzzed = create_app(
        Dependencies(templates=MemoryTemplates(), policy=lambda: POLICY, cards=lambda: CARDS)
    )
    yield fuzzed
    logging.disable(logging.NOTSET)
    # What was tried is no heap of rubbish: much of it gets far.
    counted = dict(DECISIONS.findall(asyncio.run(get(fuzzed, "/metrics")).text))
    assert float(counted.pop("error")) == 0
    assert all(float(count) > REVIEWS / 100 for count in counted.values()), counted


async def answer(app: FastAPI, body: bytes) -> tuple[int, bytes]:
    """Call the application as a server does, without one."""
    said: list[bytes] = []
    status: list[int] = []
    rest = [{"type": "http.request", "body": body, "more_body": False}]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "https",
        "path": "/mutate",
        "raw_path": b"/mutate",
        "query_string": b"timeout=5s",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
    }

    async def receive() -> dict[str, object]:
        return dict(rest.pop()) if rest else {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            status.append(int(str(message["status"])))
        elif isinstance(text := message.get("body", b""), bytes):
            said.append(text)

    await app(scope, receive, send)  # type: ignore[arg-type]  # plain dicts are what servers send
    return status[0], b"".join(said)


@settings(
    max_examples=REVIEWS // BATCH,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(bodies=drawn_bodies())
def test_no_damaged_review_makes_the_webhook_fail(app: FastAPI, bodies: list[bytes]) -> None:
    async def answers() -> list[tuple[int, bytes]]:
        async with asyncio.timeout(60):
            return [await answer(app, body) for body in bodies]

    for body, (status, said) in zip(bodies, asyncio.run(answers()), strict=True):
        assert status in {200, 400}, body
        if status == 200:
            response = json.loads(said)["response"]
            assert response["allowed"] or response["status"]["code"] in {409, 422}, body
