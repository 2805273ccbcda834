"""A component's warnings stand where people look for them, once."""

from datetime import UTC, datetime, timedelta

from hami_dra.kube.node_events import NodeEvents
from hami_dra.kube.session import Session
from tests.hami_dra.kube.api_double import ApiDouble

POST = "POST /api/v1/namespaces/default/events"


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 30, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Tell the time."""
        return self.time


async def test_a_warning_stands_in_the_events_of_the_node(api: ApiDouble, session: Session) -> None:
    await NodeEvents(session, "hami-dra-node", "n1").warn("CardsNotFound", "x" * 5000)

    [event] = api.all("events")
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1",
    }
    assert event["type"] == "Warning"
    assert event["reason"] == "CardsNotFound"
    assert len(event["message"]) == 1024


async def test_the_same_warning_is_written_once_in_ten_minutes(
    api: ApiDouble, session: Session
) -> None:
    clock = Clock()
    events = NodeEvents(session, "hami-dra-node", "n1", now=clock)
    for _ in range(3):
        await events.warn("A", "one")
    await events.warn("A", "another")
    assert api.count(POST) == 2

    clock.time += timedelta(minutes=11)
    await events.warn("A", "one")
    assert api.count(POST) == 3

    clock.time -= timedelta(days=400)
    await events.warn("A", "one")
    assert api.count(POST) == 4, "a clock that is set back silences nothing"


async def test_an_event_that_cannot_be_written_stops_nobody(
    api: ApiDouble, session: Session
) -> None:
    api.fail(POST, 403)

    await NodeEvents(session, "hami-dra-node", "n1").warn("A", "one")

    assert api.all("events") == []
