"""The kubelet registers the plugin, prepares and unprepares claims, and learns how cards are."""

import asyncio
import fcntl
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc import aio

from hami_dra.kube.errors import UnreachableError
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.node.health import HealthBoard
from hami_dra.node.messages import ClaimReference, Health, Prepared
from hami_dra.node.metrics import Metrics
from hami_dra.node.plugin import Machine, Plugin, Refusing
from hami_dra.node.server import KubeletServer
from hami_dra.node.sockets import SocketPathError, Sockets, choose, remove_dead
from tests.hami_dra.node.claims import DEVICES, DRIVER, NODE, Disk, claim, result
from tests.hami_dra.node.fake_kubelet import KNOWN, FakeKubelet, RegisteredPlugin


def reference(wanted: Json) -> ClaimReference:
    metadata = wanted["metadata"]
    return ClaimReference(metadata["namespace"], metadata["uid"], metadata["name"])


@dataclass
class Served:
    """An agent's servers and what stands behind them."""

    disk: Disk
    kubelet: FakeKubelet
    sockets: Sockets
    board: HealthBoard
    metrics: Metrics
    server: KubeletServer
    plugin: Plugin
    stored: dict[str, Json] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    away: bool = False
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def store(self, wanted: Json) -> ClaimReference:
        """Have a claim in the API server."""
        self.stored[wanted["metadata"]["uid"]] = wanted
        return reference(wanted)

    async def find(self, wanted: ClaimReference) -> Json | None:
        """Read a claim as the API server gives it."""
        self.reads.append(wanted.uid)
        self.arrived.set()
        await self.gate.wait()
        if self.away:
            raise UnreachableError("GET: connection refused")
        return self.stored.get(wanted.uid)


@asynccontextmanager
async def serving(
    root: Path,
    *,
    instance: str = "",
    machine: Callable[[Disk], Machine] = lambda disk: disk.start(),
) -> AsyncIterator[Served]:
    registry = root / "registry"
    registry.mkdir(exist_ok=True)
    disk = Disk(root / "disk")
    board, metrics = HealthBoard(NODE, resend_s=0.05), Metrics()
    sockets = choose(registry, disk.state, DRIVER, instance)
    kubelet = FakeKubelet(registry)

    async def find(wanted: ClaimReference) -> Json | None:
        return await shown.find(wanted)

    plugin = Plugin(machine(disk), find, metrics)
    server = KubeletServer(sockets, driver=DRIVER, plugin=plugin, health=board, metrics=metrics)
    shown = Served(disk, kubelet, sockets, board, metrics, server, plugin)
    shown.gate.set()
    await server.start()
    try:
        yield shown
    finally:
        await server.stop()
        plugin.close()


async def test_the_plugin_is_registered_and_says_what_it_serves(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        await agent.server.registered()

        assert plugin.information.name == DRIVER
        assert plugin.information.versions[:2] == ("v1.DRAPlugin", "v1beta1.DRAPlugin")
        assert plugin.service == KNOWN["v1.DRAPlugin"]
        assert agent.server.is_registered


async def test_the_kubelet_sees_a_plugin_only_when_it_serves(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It calls the moment it sees one, and waits long before it tries again."""
    listen, answers = KubeletServer._listen, list[dict[str, Prepared]]()  # noqa: SLF001

    async def listening(
        server: KubeletServer, path: Path, handlers: list[grpc.GenericRpcHandler]
    ) -> None:
        if path.parent.name == "registry":
            async with aio.insecure_channel(f"unix:{short_path}/disk/plugin/dra.sock") as channel:
                [service, *_] = KNOWN.values()
                answers.append(await RegisteredPlugin(server._info, service, channel).prepare())  # noqa: SLF001
        await listen(server, path, handlers)

    monkeypatch.setattr(KubeletServer, "_listen", listening)
    async with serving(short_path) as agent:
        assert answers == [{}]
        assert len(agent.kubelet.sockets()) == 1


async def test_a_refusal_is_kept_for_people(short_path: Path) -> None:
    async with serving(short_path) as agent:
        agent.kubelet.refusal = "already registered"
        async with agent.kubelet.registered():
            assert not agent.server.is_registered
            assert agent.server.refusal == "already registered"


@pytest.mark.parametrize("version", KNOWN)
async def test_a_claim_is_prepared_once_and_told_twice(short_path: Path, version: str) -> None:
    async with serving(short_path) as agent:
        agent.kubelet.versions = {version: KNOWN[version]}
        wanted = agent.store(claim(result(1, share="s1", request="gpu/small")))
        async with agent.kubelet.registered() as plugin:
            first = await plugin.prepare(wanted)
            agent.away = True
            again = await plugin.prepare(wanted)

            [device] = first[wanted.uid].devices
            assert again == first
            assert agent.reads == [wanted.uid]
            assert (device.pool, device.device, device.share_id) == (NODE, DEVICES[1], "s1")
            assert device.requests == ("gpu",)
            assert device.cdi_ids[0].startswith(f"hami-dra.io/claim={wanted.uid}-")

            assert await plugin.unprepare(wanted) == {wanted.uid: ""}
            assert await plugin.unprepare(wanted) == {wanted.uid: ""}
            assert agent.disk.names() == set()


async def test_a_repeated_prepare_mends_its_files_without_the_api_server(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        wanted = agent.store(claim(result()))
        first = await plugin.prepare(wanted)
        spec = agent.disk.directories.spec(wanted.uid)
        content = spec.read_bytes()
        await asyncio.to_thread(spec.unlink)

        assert await plugin.prepare(wanted) == first
        assert spec.read_bytes() == content
        assert agent.reads == [wanted.uid]


async def test_a_prepare_that_the_kubelet_gave_up_does_not_come_after_the_unprepare(
    short_path: Path,
) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        wanted, other = agent.store(claim(result())), agent.store(claim(result(1), name="other"))
        agent.gate.clear()
        with pytest.raises(aio.AioRpcError, match="DEADLINE_EXCEEDED"):
            await plugin.prepare(wanted, timeout_s=0.2)
        assert await plugin.unprepare(wanted) == {wanted.uid: ""}
        agent.gate.set()

        # By then the first one would have got there too.
        assert (await plugin.prepare(other))[other.uid].error == ""
        assert agent.disk.start().records().keys() == {other.uid}


async def test_a_claim_that_was_read_too_late_is_left_to_the_next_try(short_path: Path) -> None:
    async with serving(short_path) as agent:
        wanted = agent.store(claim(result()))

        answers = await agent.plugin.prepare([wanted], lambda: 0.5)

        assert "the kubelet tries again" in answers[wanted.uid].error
        assert agent.disk.names() == set()
        assert (await agent.plugin.prepare([wanted], lambda: 30.0))[wanted.uid].error == ""


async def test_claims_of_one_call_are_answered_each_by_itself(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        good = agent.store(claim(result()))
        big = agent.store(claim(result(1, memory="81Gi"), name="big"))
        gone = reference(claim(result(), name="gone"))
        foreign = agent.store(claim(result() | {"driver": "nic.example.com"}, name="nic"))

        answers = await plugin.prepare(good, big, gone, foreign)

        assert answers[good.uid].error == ""
        assert "82944 Mi of memory" in answers[big.uid].error
        assert "does not exist" in answers[gone.uid].error
        assert answers[foreign.uid].devices == ()
        assert answers[foreign.uid].error == ""


async def test_while_the_api_server_is_away_prepare_says_so_and_unprepare_works(
    short_path: Path,
) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        old = agent.store(claim(result()))
        new = agent.store(claim(result(1), name="new"))
        await plugin.prepare(old)
        agent.away = True

        answers = await plugin.prepare(new)
        assert "could not be read from the API server" in answers[new.uid].error
        assert await plugin.unprepare(old) == {old.uid: ""}

        agent.away = False
        assert (await plugin.prepare(new))[new.uid].error == ""


async def test_a_machine_that_must_not_touch_anything_refuses_both(short_path: Path) -> None:
    async with (
        serving(short_path, machine=lambda _: Refusing("a newer release wrote it")) as agent,
        agent.kubelet.registered() as plugin,
    ):
        wanted = agent.store(claim(result()))

        assert (await plugin.prepare(wanted))[wanted.uid].error == "a newer release wrote it"
        assert await plugin.unprepare(wanted) == {wanted.uid: "a newer release wrote it"}


async def test_two_live_instances_serve_the_same_claims(short_path: Path) -> None:
    async with serving(short_path, instance="pod-1") as old:
        wanted = old.store(claim(result()))
        async with old.kubelet.registered(old.sockets.registration) as plugin:
            first = await plugin.prepare(wanted)
        async with serving(short_path, instance="pod-2") as new:
            assert len(new.kubelet.sockets()) == 2
            async with new.kubelet.registered(new.sockets.registration) as plugin:
                assert await plugin.prepare(wanted) == first
    assert FakeKubelet(short_path / "registry").sockets() == []


async def test_health_is_told_at_once_after_changes_and_again_and_again(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        agent.board.show([("gpu-a", ""), ("gpu-b", "")])
        async with aclosing(plugin.health()) as stream:
            first = await anext(stream)
            repeated = await anext(stream)
            agent.board.show([("gpu-a", ""), ("gpu-b", "XID 79: fallen off the bus")])
            async for devices in stream:
                if devices[1].health is Health.UNHEALTHY:
                    break

        assert [each.health for each in first] == [Health.HEALTHY, Health.HEALTHY]
        assert [each.device for each in repeated] == ["gpu-a", "gpu-b"]
        assert devices[1].message == "XID 79: fallen off the bus"
        assert {each.pool for each in devices} == {NODE}


async def test_every_kubelet_hears_of_a_change(short_path: Path) -> None:
    """As one that has two agents to listen to, or has lost a line and not noticed yet."""
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        agent.board.show([("gpu-a", "")])
        async with AsyncExitStack() as open_streams:
            streams = [
                await open_streams.enter_async_context(aclosing(plugin.health())) for _ in range(20)
            ]
            for stream in streams:
                await anext(stream)
            agent.board.show([("gpu-a", "x" * 2000)])
            for stream in streams:
                async for [device] in stream:
                    if device.health is Health.UNHEALTHY:
                        assert device.message == "x" * 1024, "the most that Kubernetes takes"
                        break


async def test_a_kubelet_that_follows_health_keeps_no_agent_from_its_end(short_path: Path) -> None:
    """It follows for as long as there is an agent, and calls in progress are waited for."""
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        agent.board.show([("gpu-a", "")])
        async with aclosing(plugin.health()) as stream:
            await anext(stream)
            stopping = asyncio.ensure_future(agent.server.stop())

            # It ends as calls end; one that is cut off raises.
            async for devices in stream:
                assert devices
        await stopping


async def test_both_health_services_are_served(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        async with aclosing(plugin.health("v1alpha1.DRAResourceHealth")) as stream:
            assert await anext(stream) == ()
        assert "v1alpha1.DRAResourceHealth" in plugin.information.versions


async def test_garbage_is_refused_and_harms_nothing(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        path = f"/{plugin.service}/NodePrepareResources"
        call: aio.UnaryUnaryMultiCallable[bytes, bytes] = plugin.channel.unary_unary(path)
        with pytest.raises(aio.AioRpcError):
            await call(b"\xff\xff\xff", timeout=60)

        assert await plugin.prepare() == {}


async def test_calls_are_counted(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        wanted = agent.store(claim(result()))
        for _ in range(2):
            await plugin.prepare(wanted)
        await plugin.prepare(reference(claim(result())))

        def count(outcome: str) -> float | None:
            labels = {"method": "prepare", "outcome": outcome}
            return agent.metrics.registry.get_sample_value(
                "hami_dra_node_claim_calls_total", labels
            )

        assert (count("done"), count("repeated"), count("failed")) == (1, 1, 1)


async def test_the_liveness_probe_sees_work_that_hangs(short_path: Path) -> None:
    async with serving(short_path) as agent:
        agent.disk.lock.touch()
        with agent.disk.lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            assert "has not moved" in await asyncio.to_thread(agent.plugin.stuck, 0.05)

        assert await asyncio.to_thread(agent.plugin.stuck, 30) == ""
    assert agent.plugin.stuck(0.0) == "", "an agent that stops is not stuck"


@pytest.mark.parametrize("name", ["registration", "plugin"])
async def test_the_liveness_probe_sees_a_socket_that_somebody_removed(
    short_path: Path, name: str
) -> None:
    async with serving(short_path) as agent:
        assert agent.server.gone == ""
        path: Path = getattr(agent.sockets, name)
        await asyncio.to_thread(path.unlink)
        assert str(path) in agent.server.gone
    assert agent.server.gone == "", "an agent that stops removes them itself"


async def test_a_repeated_prepare_waits_for_nobody(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        wanted = agent.store(claim(result()))
        first = await plugin.prepare(wanted)
        with agent.disk.lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)

            assert await asyncio.wait_for(plugin.prepare(wanted), 30) == first


async def test_calls_in_progress_end_well_when_the_agent_stops(short_path: Path) -> None:
    async with serving(short_path) as agent, agent.kubelet.registered() as plugin:
        wanted = agent.store(claim(result()))
        agent.gate.clear()
        call = asyncio.ensure_future(plugin.prepare(wanted))
        await agent.arrived.wait()
        stopping = asyncio.ensure_future(agent.server.stop())
        await asyncio.to_thread(
            until, lambda: not agent.kubelet.sockets(), what="the agent left the registry"
        )
        agent.gate.set()

        assert (await call)[wanted.uid].error == ""
        await stopping


def test_long_driver_names_and_two_instances_fit_into_socket_paths(short_path: Path) -> None:
    registry, plugins = Path("/var/lib/kubelet/plugins_registry"), Path("/var/lib/kubelet/plugins")
    driver = "hami-core-gpu.project-hami.io"
    one = choose(registry, plugins / driver, driver, "5b0f4d4b-9d5e-4b1a-a8a9-0d1c33c1d0de")
    other = choose(registry, plugins / driver, driver, "a0f8a2c2-9d5e-4b1a-a8a9-0d1c33c1d0de")

    assert one.registration != other.registration
    assert one.plugin != other.plugin
    with pytest.raises(SocketPathError, match="expected at most 107"):
        choose(short_path / ("x" * 80), short_path, driver)


def test_sockets_of_dead_instances_are_removed_and_live_ones_stay(short_path: Path) -> None:
    def bound(name: str) -> socket.socket:
        line = socket.socket(socket.AF_UNIX)
        line.bind(str(short_path / name))
        return line

    bound("dra-old.sock").close()
    (short_path / "dra-file.sock").touch()
    bound("other.sock").close()
    with bound("dra-live.sock") as live:
        live.listen()

        assert remove_dead(short_path, "dra") == ("dra-old.sock",)
    assert sorted(path.name for path in short_path.iterdir()) == [
        "dra-file.sock",
        "dra-live.sock",
        "other.sock",
    ]
