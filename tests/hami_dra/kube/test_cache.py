"""The cache follows a collection through every fault that a watch can meet."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cache import WatchCache
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from tests.hami_dra.kube.api_double import TEMPLATES, ApiDouble

KIND = "resourceclaimtemplates"
LIST = f"GET {TEMPLATES}"
WATCH = f"WATCH {TEMPLATES}"


def template(name: str, mark: str = "") -> Json:
    return {"metadata": {"namespace": "team", "name": name}, "spec": {"mark": mark}}


class Followed:
    """A running cache whose changes can be waited for."""

    def __init__(self, session: Session, backoff: Backoff) -> None:
        self._news = asyncio.Event()
        self.cache: WatchCache[str] = WatchCache(
            session,
            TEMPLATES,
            project=lambda item: str(item["spec"]["mark"]),
            changed=self._news.set,
            backoff=backoff,
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a change that makes the condition true."""
        while not condition():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), timeout=60)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Followed"]:
        """Run the cache meanwhile, from its first list on."""
        task = asyncio.create_task(self.cache.run())
        try:
            await asyncio.wait_for(self.cache.synced(), timeout=60)
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def followed(session: Session, backoff: Callable[[], Backoff]) -> Followed:
    return Followed(session, backoff())


async def test_what_is_listed_and_what_happens_later_is_known(
    api: ApiDouble, followed: Followed
) -> None:
    await api.put(KIND, template("old", "1"))

    async with followed.running():
        cache = followed.cache
        assert cache.get("team", "old") == "1"
        assert cache.get("other", "old") is None
        await api.called(WATCH, 1)
        await api.put(KIND, template("new", "2"))
        await api.put(KIND, template("old", "3"))
        await followed.until(lambda: sorted(cache.values()) == ["2", "3"])
        await api.remove(KIND, "team", "old")
        await followed.until(lambda: list(cache.values()) == ["2"])

    assert api.count(LIST) == 1


async def test_a_long_collection_is_read_in_pages(api: ApiDouble, followed: Followed) -> None:
    for number in range(1001):
        await api.put(KIND, template(f"t{number:04}", str(number)))

    async with followed.running():
        assert len(followed.cache.values()) == 1001

    assert api.count(LIST) == 3


async def test_an_orderly_end_continues_without_a_list(api: ApiDouble, followed: Followed) -> None:
    async with followed.running():
        await api.called(WATCH, 1)
        await api.put(KIND, template("a", "1"))
        await followed.until(lambda: followed.cache.get("team", "a") == "1")
        await api.end_streams()
        await api.put(KIND, template("b", "2"))
        await followed.until(lambda: followed.cache.get("team", "b") == "2")

    assert api.count(LIST) == 1


async def test_a_connection_cut_in_mid_line_is_listed_again(
    api: ApiDouble, followed: Followed
) -> None:
    async with followed.running():
        await api.called(WATCH, 1)
        await api.put(KIND, template("a", "1"))
        await followed.until(lambda: followed.cache.get("team", "a") == "1")
        await api.end_streams(b'{"type":"ADDED","object":{"metadata":{"na')
        await api.called(LIST, 2)
        assert followed.cache.get("team", "a") == "1"
        await api.put(KIND, template("b", "2"))
        await followed.until(lambda: followed.cache.get("team", "b") == "2")


@pytest.mark.parametrize("place", ["stream", "request"])
async def test_gone_lists_again_and_drops_what_went_meanwhile(
    api: ApiDouble, followed: Followed, place: str
) -> None:
    await api.put(KIND, template("a", "1"))
    await api.put(KIND, template("b", "2"))
    gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'

    async with followed.running():
        await api.called(WATCH, 1)
        if place == "request":
            api.fail(WATCH, 410)
        await api.end_streams(gone if place == "stream" else b"")
        await api.remove(KIND, "team", "a")
        api.forget_history()
        await followed.until(lambda: list(followed.cache.values()) == ["2"])
        await api.called(LIST, 2)


async def test_server_errors_keep_the_known_state_and_are_tried_again(
    api: ApiDouble, followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    await api.put(KIND, template("a", "1"))

    async with followed.running():
        await api.called(WATCH, 1)
        for _ in range(3):
            api.fail(LIST, 500)
        api.fail(LIST, 200, b"<html>a proxy</html>")
        api.fail(WATCH, 500)
        await api.end_streams(b"{")
        await api.called(LIST, 5)
        assert followed.cache.get("team", "a") == "1"
        await api.put(KIND, template("b", "2"))
        await followed.until(lambda: followed.cache.get("team", "b") == "2")

    assert "500 Fault: injected" in caplog.text
    assert "is not JSON" in caplog.text


async def test_it_waits_for_a_server_that_is_not_there_yet(
    api: ApiDouble, followed: Followed
) -> None:
    for _ in range(4):
        api.fail(LIST, 503)

    async with followed.running():
        assert followed.cache.is_synced

    assert api.count(LIST) == 5


async def test_events_longer_than_any_buffer_arrive_whole(
    api: ApiDouble, followed: Followed
) -> None:
    long = "x" * 9_000_000

    async with followed.running():
        await api.called(WATCH, 1)
        await api.put(KIND, template("a", long))
        await followed.until(lambda: followed.cache.get("team", "a") == long)


async def test_a_noted_object_is_known_until_the_watch_says_it_was_deleted(
    api: ApiDouble, followed: Followed
) -> None:
    async with followed.running():
        await api.called(WATCH, 1)
        ahead = template("a", "mine")
        ahead["metadata"]["resourceVersion"] = "102"
        followed.cache.note(ahead)
        assert followed.cache.get("team", "a") == "mine"

        await api.put(KIND, template("a", "mine"))  # version 101: the watch is still behind
        await followed.until(lambda: "mine" in followed.cache.values())
        assert followed.cache.get("team", "a") == "mine"
        await api.remove(KIND, "team", "a")  # version 102
        await followed.until(lambda: not followed.cache.values())

        assert followed.cache.get("team", "a") is None


@pytest.mark.parametrize("version", ["99", "not-a-number", ""])
async def test_a_noted_object_that_the_watch_has_passed_is_ignored(
    followed: Followed, version: str
) -> None:
    async with followed.running():
        behind: Any = template("a")
        behind["metadata"]["resourceVersion"] = version
        followed.cache.note(behind)

        assert followed.cache.get("team", "a") is None


async def test_a_namespaces_objects_are_found_without_a_search(
    api: ApiDouble, followed: Followed
) -> None:
    other = template("same", "other")
    other["metadata"]["namespace"] = "other"
    await api.put(KIND, template("same", "1"))

    async with followed.running():
        cache, listed = followed.cache, followed.cache.version
        await api.called(WATCH, 1)
        await api.put(KIND, other)
        await api.put(KIND, template("more", "2"))
        await followed.until(lambda: sorted(cache.within("team")) == ["1", "2"])
        assert list(cache.within("other")) == ["other"]
        assert list(cache.within("nowhere")) == []
        assert cache.version > listed
        await api.remove(KIND, "team", "same")
        await api.remove(KIND, "other", "same")
        await followed.until(lambda: list(cache.values()) == ["2"])
        assert (list(cache.within("team")), list(cache.within("other"))) == (["2"], [])

        api.fail(WATCH, 410)
        await api.end_streams()
        await followed.until(lambda: api.count(LIST) == 2 and len(cache.values()) == 1)
        assert list(cache.within("team")) == ["2"]
