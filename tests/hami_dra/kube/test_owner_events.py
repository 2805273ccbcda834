"""Owners are told what was noticed of their pods: once, boundedly, and never in a pod's way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.kube.owner_events import OwnerEvents, controller_of, note_of
from hami_dra.kube.session import Session
from hami_dra.migration import Code, Json, Notice
from tests.hami_dra.kube.api_double import EVENTS, ApiDouble
from tests.pods import anything

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOST = Notice(Code.HINT_LOST, "metadata.annotations[x]", "no claim can say it")
CREATE = f"POST {EVENTS}/namespaces/team/events"


def owned(uid: str = "u-1", **changes: object) -> Json:
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "inference-5db6446797",
        "uid": uid,
        "controller": True,
        **changes,
    }
    return {"metadata": {"ownerReferences": [reference]}}


@asynccontextmanager
async def telling(session: Session) -> AsyncIterator[OwnerEvents]:
    events = OwnerEvents(session, "webhook-1", now=lambda: NOW, pace_s=0)
    task = asyncio.create_task(events.run())
    async with asyncio.timeout(60):
        yield events
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_owner_gets_an_event(api: ApiDouble, session: Session) -> None:
    async with telling(session) as events:
        events.tell("team", owned(), [LOST])
        await api.called(CREATE, 1)
        while not events.written:  # noqa: ASYNC110 - the public sign of progress
            await asyncio.sleep(0)

    [name] = [name for kind, _, name in api.names() if kind == "events"]
    event = api.found("events", "team", name)
    assert name.startswith("inference-5db6446797.")
    assert event["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "namespace": "team",
        "name": "inference-5db6446797",
        "uid": "u-1",
    }
    assert (event["reason"], event["type"]) == ("HintLost", "Warning")
    assert event["note"] == "HintLost: metadata.annotations[x]: no claim can say it"
    assert event["eventTime"] == "2026-01-02T03:04:05.000000Z"


async def test_many_pods_of_one_owner_are_one_event(api: ApiDouble, session: Session) -> None:
    async with telling(session) as events, telling(session) as replica:
        for _ in range(50):
            events.tell("team", owned(), [LOST])
            replica.tell("team", owned(), [LOST])
        events.tell("team", owned("u-2"), [LOST])
        await api.called(CREATE, 3)
        while events.written + replica.written < 2:  # noqa: ASYNC110 - the sign of progress
            await asyncio.sleep(0)

    assert api.count(CREATE) == 3  # each replica once, and another owner
    assert len([1 for kind, _, _ in api.names() if kind == "events"]) == 2
    assert events.dropped == replica.dropped == 0


async def test_an_event_that_is_refused_is_dropped_and_the_next_one_comes(
    api: ApiDouble, session: Session
) -> None:
    api.fail(CREATE, 403)
    async with telling(session) as events:
        events.tell("team", owned("u-1"), [LOST])
        events.tell("team", owned("u-2"), [LOST])
        while not events.written:  # noqa: ASYNC110 - the public sign of progress
            await asyncio.sleep(0)

    assert (events.dropped, events.written) == (1, 1)


async def test_a_flood_is_bounded_and_what_was_dropped_may_be_told_later(session: Session) -> None:
    events = OwnerEvents(session, "webhook-1")  # nothing is written: it does not run

    for number in range(1000):
        events.tell("team", owned(f"u-{number}"), [LOST])
    dropped = events.dropped
    events.tell("team", owned("u-0"), [LOST])
    events.tell("team", owned("u-999"), [LOST])

    assert dropped == 1000 - 256
    assert events.dropped == dropped + 1


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": {}},
        owned(controller=False),
        owned(controller="true"),
        owned(name=None),
        owned(kind=["ReplicaSet"]),
        {"metadata": {"ownerReferences": [None, 1]}},
    ],
)
async def test_a_pod_without_a_controller_is_left_to_its_warnings(
    session: Session, pod: Json
) -> None:
    events = OwnerEvents(session, "webhook-1")

    events.tell("team", pod, [LOST] * 300)

    assert controller_of(pod) is None
    assert events.dropped == 0


@given(anything)
def test_any_owner_reference_is_a_controller_or_none(value: Any) -> None:  # noqa: ANN401 - JSON
    for pod in ({"metadata": value}, {"metadata": {"ownerReferences": [value]}}):
        controller_of(pod)


@given(st.text())
def test_a_note_is_one_line_that_an_event_can_hold(message: str) -> None:
    note = note_of(Notice(Code.HINT_LOST, "x" * 900, message))

    assert len(note.encode()) <= 1024
    assert note.isprintable()
