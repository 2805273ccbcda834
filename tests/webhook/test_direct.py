"""A usual review is answered inside its connection, and nobody can tell but by the clock."""

import asyncio
import gc
import json
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hami_dra.kube.templates import MemoryTemplates, Outcome
from hami_dra.lab.replica import trusting_anybody
from hami_dra.migration import Template
from tests.webhook.reviews import gpu_pod, review_of
from webhook.app import Application, Dependencies, create_app
from webhook.direct import DirectProtocol
from webhook.server import Server
from webhook.standalone import LOOPBACK, made_up_certificate

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Gated(MemoryTemplates):
    """Templates that take until the gate is opened to be made."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()

    async def ensure(self, namespace: str, template: Template) -> Outcome:
        """Wait for the gate first."""
        self.asked.set()
        await self.gate.wait()
        return await super().ensure(namespace, template)


@pytest.fixture
def templates() -> Gated:
    return Gated()


@asynccontextmanager
async def dialled(app: Application) -> AsyncIterator[Streams]:
    """Serve in this process, and connect."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    with made_up_certificate(LOOPBACK) as (certificate, _):
        server = Server(app, certificate, host=LOOPBACK, port=0, announce=url.set_result)
        serving = asyncio.create_task(server.serve())
        port = int((await url).rpartition(":")[2])
        # The system takes as little as possible in for a client that does not read.
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        narrow.connect((LOOPBACK, port))
        streams = await asyncio.open_connection(
            sock=narrow, server_hostname=LOOPBACK, ssl=trusting_anybody()
        )
        try:
            yield streams
        finally:
            streams[1].transport.abort()
            server.should_exit = True
            await asyncio.wait_for(serving, timeout=30)


def request(body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST /mutate HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def review(uid: str, **limits: str) -> bytes:
    return json.dumps(review_of(gpu_pod(**(limits or {"gpu": "1"})), uid=uid)).encode()


async def answer(streams: Streams) -> tuple[list[bytes], bytes]:
    """Read an answer: the lines of its head without the date, and its body."""
    reader, _ = streams
    head = b"HTTP/1.1 100"
    while head.startswith(b"HTTP/1.1 100"):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=60)
    lines = [line for line in head.split(b"\r\n") if line and not line.startswith(b"date:")]
    [length] = [int(line.split()[1]) for line in lines if line.startswith(b"content-length")]
    return lines, await reader.readexactly(length)


async def uid_of(streams: Streams) -> str:
    _, body = await answer(streams)
    return str(json.loads(body)["response"]["uid"])


BODIES = {
    "admitted": review("u"),
    "unchanged": json.dumps(review_of({"spec": {"containers": [{"name": "web"}]}})).encode(),
    "refused": review("u", gpu="1", gpumem="8Gi"),
    "no review": b'{"kind": "Pod"}',
    "no JSON": b"{",
    "nothing": b"",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("header", [b"X-Other: 1", b"Connection: close"])
async def test_both_ways_give_the_same_answer(templates: Gated, body: bytes, header: bytes) -> None:
    templates.gate.set()
    app = create_app(Dependencies(templates=templates))
    answers = []
    # Who expects to be told to go on takes the way of ASGI; the first of a shape creates.
    for expect in ((), (), (b"Expect: 100-continue",)):
        async with dialled(app) as streams:
            streams[1].write(request(body, header, *expect))
            answers.append(await answer(streams))
            assert (b"connection: close" in answers[-1][0]) == (header == b"Connection: close")

    first, direct, usual = answers
    assert first == direct == usual


async def test_a_review_that_waits_is_not_overtaken(templates: Gated) -> None:
    """The later ones need no template; the API server matches answers by their order alone."""
    async with dialled(create_app(Dependencies(templates=templates))) as streams:
        plain = json.dumps(review_of({"spec": {"containers": []}}, uid="plain")).encode()
        streams[1].write(request(review("waits")) + request(plain) + request(plain, b"Expect: x"))
        await asyncio.wait_for(templates.asked.wait(), timeout=30)
        templates.gate.set()

        assert [await uid_of(streams) for _ in range(3)] == ["waits", "plain", "plain"]


async def test_who_leaves_while_a_review_waits_harms_nobody(
    templates: Gated, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(Dependencies(templates=templates))
    async with dialled(app) as leaving:
        leaving[1].write(request(review("leaves")))
        await asyncio.wait_for(templates.asked.wait(), timeout=30)
        leaving[1].transport.abort()
        templates.gate.set()
    async with dialled(app) as streams:
        streams[1].write(request(review("after")))

        assert await uid_of(streams) == "after"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "sent",
    [
        request(review("u")),
        request(review("u"))[:-1],
        request(review("u"), b"Expect: 100-continue"),
    ],
    ids=["a review", "a part of one", "one by the way of ASGI"],
)
async def test_a_connection_that_is_over_leaves_nothing(
    templates: Gated, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Each holds a quarter of a MiB for TLS, and the garbage collector comes by too seldom."""
    templates.gate.set()
    came, gone = asyncio.Event(), asyncio.Event()
    watched = list[weakref.ref[DirectProtocol]]()
    receive = DirectProtocol.data_received

    def recording(self: DirectProtocol, data: bytes) -> None:
        watched.append(weakref.ref(self, lambda _: gone.set()))
        came.set()
        receive(self, data)

    monkeypatch.setattr(DirectProtocol, "data_received", recording)
    gc.disable()
    try:
        async with dialled(create_app(Dependencies(templates=templates))) as streams:
            streams[1].write(sent)
            await asyncio.wait_for(came.wait(), timeout=30)
        await asyncio.wait_for(gone.wait(), timeout=30)
    finally:
        gc.enable()


@pytest.fixture
def buffered(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], asyncio.Event]:
    """Record what waits to be sent whenever an answer was written, and when that is too much."""
    sizes, paused = list[int](), asyncio.Event()
    reply, pause = DirectProtocol._reply, DirectProtocol.pause_writing  # noqa: SLF001

    def recording(self: DirectProtocol, *rest: object) -> None:
        reply(self, *rest)  # type: ignore[arg-type]
        sizes.append(self.transport.get_write_buffer_size())

    def pausing(self: DirectProtocol) -> None:
        paused.set()
        pause(self)

    monkeypatch.setattr(DirectProtocol, "_reply", recording)
    monkeypatch.setattr(DirectProtocol, "pause_writing", pausing)
    return sizes, paused


async def test_a_client_that_reads_no_answers_does_not_fill_our_memory(
    templates: Gated, buffered: tuple[list[int], asyncio.Event]
) -> None:
    """It still gets all of them, in order, once it reads."""
    templates.gate.set()
    sizes, paused = buffered
    count = 6000
    async with dialled(create_app(Dependencies(templates=templates))) as streams:
        streams[1].write(request(review("first")))
        assert await uid_of(streams) == "first"
        for number in range(count):
            streams[1].write(request(review(str(number))))
        await asyncio.wait_for(paused.wait(), timeout=60)

        assert [await uid_of(streams) for _ in range(count)] == [str(n) for n in range(count)]
    assert max(sizes) < 2**20
