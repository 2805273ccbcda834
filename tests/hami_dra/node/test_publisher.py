"""The slice is there, comes back when somebody takes it away, and costs nothing meanwhile."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.errors import ApiError
from hami_dra.kube.session import Session
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.node.coexistence import device_plugin
from hami_dra.node.devices import resource_slice, slice_name
from hami_dra.node.metrics import Metrics
from hami_dra.node.publisher import RESYNC_S, Publisher
from hami_dra.node.troubles import HARMLESS, Trouble, Troubles
from tests.hami_dra.kube.api_double import SLICES, ApiDouble
from tests.hami_dra.kube.test_slices import without_gate
from tests.hami_dra.node.claims import CARDS, DRIVER, NODE

NAME = slice_name(NODE, DRIVER)
PUT, POST = f"PUT {SLICES}/{NAME}", f"POST {SLICES}"
WRITES = ("POST", "PUT", "DELETE", "PATCH")


@dataclass
class Heard:
    """Events that were written."""

    told: list[tuple[str, str]] = field(default_factory=list)

    async def warn(self, reason: str, message: str) -> None:
        """Hear a warning."""
        self.told.append((reason, message))


@dataclass
class Publishing:
    """A publisher at work."""

    api: ApiDouble
    publisher: Publisher
    troubles: Troubles
    heard: Heard
    count: int = 2
    unhealthy: dict[str, str] = field(default_factory=dict)

    def wanted(self, uid: str) -> Json:
        """Build the slice."""
        return resource_slice(
            CARDS[: self.count],
            node=NODE,
            node_uid=uid,
            driver=DRIVER,
            unhealthy=self.unhealthy,
        )

    def stored(self) -> Json | None:
        """Return what the API server has."""
        try:
            return self.api.found("resourceslices", "", NAME)
        except KeyError:
            return None

    def writes(self) -> list[str]:
        """Return all writes."""
        return [call for call in self.api.calls if call.startswith(WRITES)]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something."""
        await asyncio.to_thread(until, lambda: bool(condition()), what=what, every_s=0.005)


@asynccontextmanager
async def publishing(
    api: ApiDouble,
    session: Session,
    *,
    node: Json | None = None,
    resync_s: float = RESYNC_S,
) -> AsyncIterator[Publishing]:
    await api.put("nodes", node or a_node())
    heard, metrics = Heard(), Metrics()
    troubles = Troubles(heard, metrics)
    publisher = Publisher(
        session,
        node=NODE,
        driver=DRIVER,
        wanted=lambda uid: shown.wanted(uid),  # noqa: PLW0108 - made below
        troubles=troubles,
        metrics=metrics,
        backoff=Backoff(initial_s=0.001, limit_s=0.02),
        resync_s=resync_s,
    )
    shown = Publishing(api, publisher, troubles, heard)
    task = asyncio.create_task(publisher.run())
    try:
        yield shown
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def a_node(uid: str = "u1", **allocatable: str) -> Json:
    shown = {name.replace("_", "/"): amount for name, amount in allocatable.items()}
    return {"metadata": {"name": NODE, "uid": uid}, "status": {"allocatable": shown}}


async def test_it_is_published_once_and_then_left_alone(api: ApiDouble, session: Session) -> None:
    async with publishing(api, session) as shown:
        await shown.publisher.published()
        calls = len(api.calls)
        for _ in range(5):
            shown.publisher.refresh()
            await asyncio.sleep(0)
        await api.put("resourceslices", a_slice_of("other.example.com"))
        await shown.until(lambda: f"WATCH {SLICES}" in api.calls, "it watches")

        assert shown.writes() == [POST]
        assert [call for call in api.calls[calls:] if not call.startswith("WATCH")] == []
        assert shown.heard.told == []


def a_slice_of(driver: str, name: str = "other") -> Json:
    spec = {"driver": driver, "nodeName": NODE, "pool": {"name": NODE}}
    return {"metadata": {"name": name, "uid": "x"}, "spec": spec}


async def test_a_deleted_slice_comes_back(api: ApiDouble, session: Session) -> None:
    async with publishing(api, session) as shown:
        for _ in range(3):
            await shown.publisher.published()
            await api.remove("resourceslices", "", NAME)
            await shown.until(shown.stored, "the slice is back")


async def test_a_changed_slice_is_put_right(api: ApiDouble, session: Session) -> None:
    async with publishing(api, session) as shown:
        await shown.publisher.published()
        harmed = copy.deepcopy(shown.stored())
        assert harmed is not None
        harmed["spec"]["devices"].pop()
        await api.put("resourceslices", harmed)

        await shown.until(
            lambda: len((shown.stored() or {"spec": {}})["spec"]["devices"]) == 2, "two cards"
        )


async def test_a_change_of_cards_is_published(api: ApiDouble, session: Session) -> None:
    async with publishing(api, session) as shown:
        await shown.publisher.published()
        shown.count = 3
        shown.publisher.refresh()

        await shown.until(
            lambda: len((shown.stored() or {"spec": {}})["spec"]["devices"]) == 3, "three cards"
        )


async def test_a_node_made_anew_owns_its_slice(api: ApiDouble, session: Session) -> None:
    async with publishing(api, session) as shown:
        await shown.publisher.published()
        await api.put("nodes", a_node("u2"))
        await api.remove("resourceslices", "", NAME)
        await shown.until(shown.stored, "the slice is back")

        stored = shown.stored()
        assert stored is not None
        assert stored["metadata"]["ownerReferences"][0]["uid"] == "u2"


@pytest.mark.parametrize("status", [409, 500, 503, 429])
async def test_a_passing_failure_is_tried_again(
    api: ApiDouble, session: Session, status: int
) -> None:
    for _ in range(6):
        api.fail(POST, status)
    async with publishing(api, session) as shown:
        await shown.publisher.published()

    assert api.count(POST) == 7


async def test_dropped_fields_are_told_once_and_not_fought(
    api: ApiDouble, session: Session
) -> None:
    api.on_store = lambda item: without_gate(item) if "spec" in item else copy.deepcopy(item)
    async with publishing(api, session) as shown:
        await shown.until(shown.troubles.current, "trouble")
        for _ in range(5):
            shown.publisher.refresh()
            await asyncio.sleep(0)

        [(reason, message)] = shown.heard.told
        assert reason == "ApiServerDropsFields"
        assert "DRAConsumableCapacity" in message
        assert not shown.publisher.is_published
        assert shown.writes() == [POST]

        api.on_store = copy.deepcopy
        await api.remove("resourceslices", "", NAME)
        await shown.publisher.published()
        assert shown.troubles.current() == {}


async def test_fields_that_were_dropped_are_sent_again_now_and_then(
    api: ApiDouble, session: Session
) -> None:
    api.on_store = lambda item: without_gate(item) if "spec" in item else copy.deepcopy(item)
    async with publishing(api, session, resync_s=0.05) as shown:
        await shown.until(shown.heard.told.__len__, "an event")
        api.on_store = copy.deepcopy

        await shown.publisher.published()
        assert shown.troubles.current() == {}


async def test_cards_whose_taints_are_dropped_are_published_and_that_is_told(
    api: ApiDouble, session: Session
) -> None:
    """As on 1.35: a card that failed holds neither a rolling update nor an installation."""
    api.on_store = lambda item: without_taints(item) if "spec" in item else copy.deepcopy(item)
    async with publishing(api, session) as shown:
        await shown.publisher.published()
        shown.unhealthy[CARDS[0].uuid] = "xid-79"
        shown.publisher.refresh()
        await shown.until(shown.heard.told.__len__, "an event")

        [(reason, message)] = shown.heard.told
        assert reason == "ApiServerDropsTaints"
        assert "DRADeviceTaints" in message
        assert shown.publisher.is_published
        assert shown.troubles.current().keys() <= HARMLESS

        shown.unhealthy.clear()
        shown.publisher.refresh()
        await shown.until(lambda: not shown.troubles.current(), "it is over")
        assert len(shown.writes()) == 2, "what is stored is right again"


def without_taints(item: Json) -> Json:
    """Store what an API server without DRADeviceTaints stores."""
    stored = copy.deepcopy(item)
    for device in stored["spec"]["devices"]:
        device.pop("taints", None)
    return stored


async def test_a_refused_slice_is_told_with_the_servers_words(
    api: ApiDouble, session: Session
) -> None:
    api.fail(POST, 422)
    async with publishing(api, session) as shown:
        await shown.until(shown.heard.told.__len__, "an event")

        [(reason, message)] = shown.heard.told
        assert reason == "ResourceSliceRefused"
        assert "injected" in message
        assert api.count(POST) == 1

        shown.publisher.refresh()
        await shown.publisher.published()
        assert shown.troubles.current() == {}


async def test_a_missing_permission_is_told_and_tried_again(
    api: ApiDouble, session: Session
) -> None:
    for _ in range(3):
        api.fail(POST, 403)
    async with publishing(api, session) as shown:
        await shown.publisher.published()

        assert [reason for reason, _ in shown.heard.told] == ["MissingPermission"]
        assert shown.troubles.current() == {}


async def test_a_list_that_is_forbidden_is_told_and_tried_again(
    api: ApiDouble, session: Session
) -> None:
    """As without any rights, where the list is the first that is refused."""
    api.fail(f"GET {SLICES}", 403)
    async with publishing(api, session) as shown:
        await shown.publisher.published()

        [(reason, message)] = shown.heard.told
        assert reason == "MissingPermission"
        assert "injected" in message
        assert shown.troubles.current() == {}


async def test_a_server_that_asks_for_patience_is_left_alone(
    api: ApiDouble, session: Session
) -> None:
    async with publishing(api, session) as shown:
        busy = ApiError(429, "TooManyRequests", "later", {"retryAfterSeconds": 7})

        assert await shown.publisher._refused(busy) >= 7  # noqa: SLF001


@pytest.mark.parametrize("status", [400, 422])
async def test_a_slice_that_is_refused_is_not_sent_again_and_again(
    api: ApiDouble, session: Session, status: int
) -> None:
    async with publishing(api, session) as shown:
        refused = ApiError(status, "Invalid", "no such field")

        assert await shown.publisher._refused(refused) == RESYNC_S  # noqa: SLF001


async def test_writes_that_somebody_undoes_are_spread(api: ApiDouble, session: Session) -> None:
    class Pauses(Backoff):
        """Counts the pauses."""

        count = 0

        async def wait(self) -> None:
            """Count one."""
            self.count += 1

    async with publishing(api, session) as shown:
        pauses = Pauses()
        shown.publisher._pause = pauses  # noqa: SLF001
        await shown.publisher.published()
        for _ in range(3):
            pauses.count = 0
            await api.remove("resourceslices", "", NAME)
            await shown.until(lambda: pauses.count, "it pauses")
            await shown.until(shown.stored, "the slice is back")


async def test_slices_of_our_driver_that_are_not_ours_go(api: ApiDouble, session: Session) -> None:
    await api.put("resourceslices", a_slice_of(DRIVER, "former"))
    await api.put("resourceslices", a_slice_of("nic.example.com", "theirs"))
    async with publishing(api, session) as shown:
        await shown.until(lambda: not shown.troubles.current() and shown.heard.told, "it is gone")

        with pytest.raises(KeyError):
            api.found("resourceslices", "", "former")
        assert api.found("resourceslices", "", "theirs")
        assert [reason for reason, _ in shown.heard.told] == ["ForeignResourceSlice"]


async def test_nothing_is_published_beside_a_device_plugin(
    api: ApiDouble, session: Session
) -> None:
    async with publishing(api, session, node=a_node(**{"nvidia.com_gpu": "8"})) as shown:
        await shown.until(shown.heard.told.__len__, "an event")

        assert shown.stored() is None
        assert list(shown.troubles.current()) == [Trouble.DEVICE_PLUGIN]

        await api.put("nodes", a_node(**{"nvidia.com_gpu": "0"}))
        shown.publisher.refresh()
        await shown.publisher.published()
        assert shown.troubles.current() == {}


async def test_cards_are_withdrawn_when_a_device_plugin_comes(
    api: ApiDouble, session: Session
) -> None:
    async with publishing(api, session, resync_s=0.05) as shown:
        await shown.publisher.published()
        await api.put("nodes", a_node(**{"nvidia.com_gpu": "8"}))

        await shown.until(lambda: shown.stored() is None, "nothing is offered twice")
        assert list(shown.troubles.current()) == [Trouble.DEVICE_PLUGIN]
        assert not shown.publisher.is_published

        await api.put("nodes", a_node())
        shown.publisher.refresh()
        await shown.until(shown.stored, "they are offered again")
        await shown.publisher.published()
        assert shown.troubles.current() == {}


async def test_cards_that_a_former_agent_offered_are_withdrawn_beside_a_device_plugin(
    api: ApiDouble, session: Session
) -> None:
    async with publishing(api, session) as former:
        await former.publisher.published()
    await api.put("resourceslices", a_slice_of(DRIVER, "former"))
    node = a_node(**{"nvidia.com_gpu": "8"})
    async with publishing(api, session, node=node) as shown:
        await shown.until(
            lambda: [each["metadata"]["name"] for each in api.all("resourceslices")] == [],
            "nothing is offered twice",
        )


@pytest.mark.parametrize(
    ("allocatable", "annotations", "expected"),
    [
        ({"nvidia.com/gpu": "10"}, {"hami.io/node-nvidia-register": "x"}, "HAMi's device plugin"),
        ({"nvidia.com/gpu": "1"}, {}, "NVIDIA's device plugin"),
        ({"nvidia.com/mig-1g.10gb": "2"}, {}, "nvidia.com/mig-1g.10gb: 2"),
        ({"nvidia.com/gpu": "0"}, {"hami.io/node-nvidia-register": "stale"}, None),
        ({"nvidia.com/gpu": "junk"}, {}, None),
        ({"amd.com/gpu": "1"}, {}, None),
    ],
)
def test_who_serves_the_cards_is_read_from_the_node(
    allocatable: dict[str, str], annotations: dict[str, str], expected: str | None
) -> None:
    node = {"metadata": {"annotations": annotations}, "status": {"allocatable": allocatable}}

    found = device_plugin(node)

    assert found is None if expected is None else found is not None and expected in found
