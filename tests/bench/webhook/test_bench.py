"""The benchmark compares what can be compared: real reviews, the same answers, honest tables."""

import base64
import json

import httpx
import pytest
from fastapi import FastAPI

from hami_dra.kube.templates import MemoryTemplates
from hami_dra.migration import Json
from tests.bench.webhook import ordinary, report, reviews
from tests.bench.webhook.end_to_end import Limits, Outcome
from tests.bench.webhook.machine import cpu_seconds, resident_mib
from tests.webhook.reviews import answer_of, post
from webhook.app import Dependencies, create_app


def filled(body: bytes, number: int) -> bytes:
    uid = f"00000000-0000-4000-8000-{number:012x}"
    return body.replace(b"<UID>", uid.encode()).replace(b"<ID>", f"{number:016x}".encode())


def patch_of(answer: Json) -> Json:
    found: Json = json.loads(base64.b64decode(answer["patch"]))
    return found


async def post_json(app: FastAPI, body: bytes) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    headers = {"Content-Type": "application/json"}
    async with httpx.AsyncClient(transport=transport, base_url="http://webhook") as client:
        return await client.post("/mutate", content=body, headers=headers)


@pytest.mark.parametrize("body", [reviews.different(), reviews.replicas()])
async def test_the_ordinary_endpoint_answers_as_the_webhook_does(body: bytes) -> None:
    app = create_app(Dependencies(templates=MemoryTemplates()))
    ours = answer_of(await post(app, filled(body, 1)))
    theirs = answer_of(await post_json(ordinary.create_app(), filled(body, 1)))

    assert patch_of(ours) == patch_of(theirs)
    assert ours["uid"] == theirs["uid"]


async def test_pods_that_differ_share_one_template_and_no_byte_string() -> None:
    templates = MemoryTemplates()
    app = create_app(Dependencies(templates=templates))
    bodies = [filled(reviews.different(), number) for number in range(1, 20)]
    for body in bodies:
        answer_of(await post(app, body))

    assert len(templates.objects) == 1
    assert len({json.dumps(json.loads(body)["request"]["object"]) for body in bodies}) == 19
    assert 4000 < len(bodies[0]) < 4500


def test_replicas_differ_in_uid_and_token_alone() -> None:
    one, other = (filled(reviews.replicas(), number).decode() for number in (1, 2))

    assert one != other
    for text, number in ((reviews.UID, 1), (reviews.ID, 1)):
        one = one.replace(filled(text.encode(), number).decode(), "")
        other = other.replace(filled(text.encode(), number + 1).decode(), "")
    assert one == other


def test_a_ratio_compares_medians() -> None:
    outcome = Outcome(Limits(20, 30, 60), legacy=[1.0, 9.0, 10.0], by_hand=[10.0, 11.0, 1.0])

    assert outcome.ratio == 0.9
    assert "0.90x" in report.end_to_end([outcome])


def test_columns_line_up() -> None:
    assert report.table(("", "b"), [("long name", "1"), ("x", "100")]).splitlines() == [
        "             b",
        "long name    1",
        "x          100",
    ]


def test_a_process_has_used_time_and_memory() -> None:
    assert cpu_seconds(1) >= 0
    assert resident_mib(1) > 0
