"""The agent as a process: what it does from its start to its end, and after a sudden one."""

import asyncio
import signal
import socket
import stat
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from hami_dra.lab.ports import free_ports
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.node.checkpoint import decode
from hami_dra.node.devices import slice_name
from hami_dra.node.messages import ClaimReference
from hami_dra.node.simulated import cards
from tests.hami_dra.kube.api_double import SLICES, ApiDouble
from tests.hami_dra.node.cdi_validator import validate_all
from tests.hami_dra.node.claims import NODE, claim, result
from tests.hami_dra.node.fake_kubelet import FakeKubelet

CARDS = cards("l4-24g", 2, NODE)
NAME = slice_name(NODE, DRIVER)


def own(card: int = 0, **amounts: str) -> Json:
    """Build an allocation result of the process's own driver."""
    return result(f"gpu-{CARDS[card].uuid.lower()[4:]}", **amounts) | {"driver": DRIVER}


@dataclass
class Node:
    """A node's directories, and the agent that runs on it."""

    root: Path
    api: ApiDouble
    kubelet: FakeKubelet
    port: int = 0

    @property
    def cdi(self) -> Path:
        """Where CDI files are."""
        return self.root / "cdi"

    @property
    def plugin_directory(self) -> Path:
        """Where the checkpoint is."""
        return self.root / "kubelet" / "plugins" / DRIVER

    @asynccontextmanager
    async def agent(self, *more: str) -> AsyncIterator[Process]:
        """Run an agent; it is killed at the end unless it has ended."""
        arguments = [
            *("--name", NODE, "--devices", "simulated", "--profile", "l4-24g", "--count", "2"),
            *("--kubelet-directory", str(self.root / "kubelet")),
            *("--cdi-directory", str(self.cdi), "--run-directory", str(self.root / "run")),
            *("--kubeconfig", str(self.root / "kubeconfig"), "--log-format", "text"),
            *("--address", "127.0.0.1", "--port", str(self.port), *more),
        ]
        log = self.root / "agent.log"
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hami_dra.node", "run", *arguments, stderr=output
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            print(log.read_text())

    async def published(self) -> Json:
        """Wait for the slice and return it."""
        return await asyncio.to_thread(
            until, self.stored, what="the slice is published", timeout_s=60
        )

    def stored(self) -> Json | None:
        """Return the stored slice."""
        try:
            return self.api.found("resourceslices", "", NAME)
        except KeyError:
            return None

    async def store(self, wanted: Json) -> ClaimReference:
        """Have a claim in the API server."""
        await self.api.put("resourceclaims", wanted)
        metadata = wanted["metadata"]
        return ClaimReference(metadata["namespace"], metadata["uid"], metadata["name"])


@asynccontextmanager
async def node(api: ApiDouble) -> AsyncIterator[Node]:
    await api.put("nodes", {"metadata": {"name": NODE, "uid": "u1"}})
    # A socket's path holds 107 bytes, and pytest's own directories are long.
    with tempfile.TemporaryDirectory(prefix="hd-") as short:
        root = Path(short)
        api.write_kubeconfig(root / "kubeconfig")
        yield Node(root, api, FakeKubelet(root / "kubelet" / "plugins_registry"))


async def test_it_publishes_registers_prepares_and_leaves_in_order(api: ApiDouble) -> None:
    async with node(api) as here, here.agent() as agent:
        stored = await here.published()
        await here.kubelet.follow()
        assert [each["attributes"]["uuid"]["string"] for each in stored["spec"]["devices"]] == [
            card.uuid for card in CARDS
        ]
        wanted = await here.store(claim(own(0, memory="4Gi"), own(1, memory="8Gi")))
        async with here.kubelet.registered() as plugin:
            answers = await plugin.prepare(wanted)
            [first, second] = answers[wanted.uid].devices
        [spec] = validate_all(here.cdi).values()
        assert len(spec["devices"]) == 2
        assert stat.S_IMODE((here.root / "run").stat().st_mode) == 0o700

        agent.send_signal(signal.SIGTERM)
        assert await agent.wait() == 0

        assert here.kubelet.sockets() == []
        assert here.stored() == stored, "slices stay, so that a restart takes no card away"
        assert len(validate_all(here.cdi)) == 1
        assert first.device != second.device


async def test_a_node_without_claims_is_left_as_it_was(api: ApiDouble) -> None:
    async with node(api) as here:
        library = here.root / "libvgpu.so"
        library.write_bytes(b"any")
        wanted = await here.store(claim(own()))
        async with here.agent("--library", str(library)) as agent:
            await here.kubelet.follow()
            async with here.kubelet.registered() as plugin:
                assert (await plugin.prepare(wanted))[wanted.uid].error == ""
                assert await plugin.unprepare(wanted) == {wanted.uid: ""}
            assert (here.plugin_directory / "checkpoint").exists()
            agent.send_signal(signal.SIGTERM)
            assert await agent.wait() == 0

        assert not here.plugin_directory.exists()
        assert not (here.root / "run").exists()


async def test_one_that_goes_leaves_the_other_what_both_share(api: ApiDouble) -> None:
    async with node(api) as here, here.agent("--instance", "new") as staying:
        async with here.agent("--instance", "old") as going:
            await asyncio.to_thread(
                until, lambda: len(here.kubelet.sockets()) == 2, what="both are there"
            )
            going.send_signal(signal.SIGTERM)
            assert await going.wait() == 0

        assert (here.plugin_directory / "claims.lock").exists()
        assert staying.returncode is None


async def test_one_that_was_killed_knows_everything_when_it_is_back(api: ApiDouble) -> None:
    async with node(api) as here:
        wanted = await here.store(claim(own()))
        async with here.agent() as agent:
            await here.kubelet.follow()
            async with here.kubelet.registered() as plugin:
                before = await plugin.prepare(wanted)
            agent.kill()
            await agent.wait()
        assert here.kubelet.sockets(), "a killed process removes nothing"
        await api.remove("resourceslices", "", NAME)
        api.calls.clear()
        async with here.agent():
            await here.published()
            await asyncio.to_thread(
                until, lambda: answers_information(here.kubelet), what="the new one answers"
            )
            async with here.kubelet.registered() as plugin:
                assert await plugin.prepare(wanted) == before
                assert await plugin.unprepare(wanted) == {wanted.uid: ""}
        assert validate_all(here.cdi) == {}
        reads = [call for call in api.calls if "resourceclaims" in call]
        assert len(reads) <= 1, "only the comparison at the start looks at claims"


async def test_it_serves_although_nothing_can_be_written_down(api: ApiDouble) -> None:
    """As on a full disk: it must be there when pods end and make room."""
    async with node(api) as here:
        here.plugin_directory.mkdir(parents=True)
        (here.plugin_directory / "checkpoint").write_bytes(b"damaged")
        in_the_way = here.plugin_directory / ".tmp-checkpoint"
        in_the_way.mkdir()
        wanted = await here.store(claim(own()))
        async with here.agent():
            await here.kubelet.follow()
            async with here.kubelet.registered() as plugin:
                assert "could not be written" in (await plugin.prepare(wanted))[wanted.uid].error
                assert await plugin.unprepare(wanted) == {wanted.uid: ""}
                in_the_way.rmdir()
                assert (await plugin.prepare(wanted))[wanted.uid].error == ""


async def test_an_error_that_nobody_foresaw_does_not_end_it(api: ApiDouble) -> None:
    async with node(api) as here:
        await api.put("nodes", {"metadata": {"name": NODE}})  # no UID, as no API server has it
        wanted = await here.store(claim(own()))
        async with here.agent() as agent:
            await asyncio.to_thread(
                until,
                lambda: "publishing failed" in (here.root / "agent.log").read_text(),
                what="the slice could not be made",
            )
            await here.kubelet.follow()
            async with here.kubelet.registered() as plugin:
                assert (await plugin.prepare(wanted))[wanted.uid].error == ""
                assert await plugin.unprepare(wanted) == {wanted.uid: ""}
            assert agent.returncode is None


def answers_information(kubelet: FakeKubelet) -> bool:
    async def ask() -> bool:
        async with kubelet.registered():
            return True

    try:
        return asyncio.run(ask())
    except Exception:  # noqa: BLE001 - whatever it says, it is not there yet
        return False


async def test_readiness_and_metrics_say_what_is_the_matter(api: ApiDouble) -> None:
    async with node(api) as here:
        [here.port] = free_ports(1)
        async with here.agent(), aiohttp.ClientSession() as client:
            await here.kubelet.follow()
            await here.published()
            url = f"http://127.0.0.1:{here.port}"
            async with client.get(f"{url}/readyz") as answer:
                assert answer.status == 503
                assert "the kubelet has not registered" in await answer.text()
            async with client.get(f"{url}/healthz") as answer:
                assert answer.status == 200
            async with here.kubelet.registered():
                async with client.get(f"{url}/readyz") as answer:
                    assert (answer.status, await answer.text()) == (200, '{"ok": true}\n')
                async with client.get(f"{url}/metrics") as answer:
                    text = await answer.text()
            async with client.get(f"{url}/other") as answer:
                assert answer.status == 404
            here.kubelet.sockets()[0].unlink()
            async with client.get(f"{url}/healthz") as answer:
                assert answer.status == 503, "it has to be started anew"
                assert "-reg.sock" in await answer.text()
        assert "hami_dra_node_registered 1.0" in text
        assert "hami_dra_node_published_devices 2.0" in text
        assert f"GET {SLICES}" in api.calls


async def test_a_port_that_is_taken_is_told_in_a_sentence(api: ApiDouble) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with node(api) as here:
            here.port = taken.getsockname()[1]
            async with here.agent() as agent:
                assert await agent.wait() == 1
            [*_, said] = (here.root / "agent.log").read_text().splitlines()
            assert said == (
                f"hami-dra-node: cannot listen on port {here.port} of 127.0.0.1:"
                " Address already in use; choose another"
            )
            assert here.kubelet.sockets() == []


async def test_what_a_person_should_know_holds_no_rolling_update(api: ApiDouble) -> None:
    """An agent that works is ready: one that is not keeps all other nodes waiting."""
    async with node(api) as here:
        [here.port] = free_ports(1)
        here.plugin_directory.mkdir(parents=True)
        (here.plugin_directory / "checkpoint").write_bytes(b"damaged")
        async with here.agent(), aiohttp.ClientSession() as client:
            await here.kubelet.follow()
            await here.published()
            url = f"http://127.0.0.1:{here.port}"
            async with here.kubelet.registered(), client.get(f"{url}/readyz") as answer:
                assert (answer.status, await answer.text()) == (200, '{"ok": true}\n')
            async with client.get(f"{url}/metrics") as answer:
                assert 'trouble{kind="CheckpointDamaged"} 1.0' in await answer.text()
            assert decode((here.plugin_directory / "checkpoint").read_bytes()).records == {}


async def test_a_second_agent_is_refused_unless_told_apart(api: ApiDouble) -> None:
    async with node(api) as here, here.agent():
        await here.kubelet.follow()
        async with here.agent() as second:
            assert await second.wait() == 1
        assert "this node already has one" in (here.root / "agent.log").read_text()
    async with (
        node(api) as here,
        here.agent("--instance", "pod-1"),
        here.agent("--instance", "pod-2"),
    ):
        await asyncio.to_thread(
            until, lambda: len(here.kubelet.sockets()) == 2, what="both are there"
        )


async def test_a_checkpoint_from_the_future_is_told_and_nothing_is_touched(api: ApiDouble) -> None:
    async with node(api) as here:
        here.plugin_directory.mkdir(parents=True)
        checkpoint = here.plugin_directory / "checkpoint"
        checkpoint.write_bytes(b"hami-dra-checkpoint 9 2 " + b"0" * 64 + b"\n{}")
        before = checkpoint.read_bytes()
        wanted = await here.store(claim(own()))
        async with here.agent():
            await here.kubelet.follow()
            async with here.kubelet.registered() as plugin:
                answers = await plugin.prepare(wanted)
                refused = await plugin.unprepare(wanted)

        assert "a newer release of hami-dra-node wrote it" in answers[wanted.uid].error
        assert "a newer release" in refused[wanted.uid]
        assert checkpoint.read_bytes() == before
