"""Who never finishes a request, or never begins one, is let go; and an end is no failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from hami_dra.kube.templates import MemoryTemplates
from hami_dra.lab.replica import trusting_anybody
from tests.webhook.wire import Wire, request, review_body
from webhook import protocol
from webhook.app import Dependencies, create_app
from webhook.server import Server
from webhook.standalone import LOOPBACK, made_up_certificate

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WHOLE = request(review_body())


@asynccontextmanager
async def serving(*, delay_s: float = 0) -> AsyncIterator[tuple[Server, int]]:
    """Serve in this process."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = create_app(Dependencies(templates=MemoryTemplates()))
    with made_up_certificate(LOOPBACK) as (certificate, _):
        server = Server(
            app,
            certificate,
            host=LOOPBACK,
            port=0,
            termination_delay_s=delay_s,
            announce=url.set_result,
        )
        task = asyncio.create_task(server.serve())
        yield server, int((await url).rpartition(":")[2])
        server.should_exit = True
        await asyncio.wait_for(task, timeout=30)


async def dial(port: int) -> Streams:
    return await asyncio.open_connection(LOOPBACK, port, ssl=trusting_anybody())


async def status_of(streams: Streams) -> tuple[int, bytes]:
    """Read an answer and return its status and head."""
    reader, _ = streams
    head = await reader.readuntil(b"\r\n\r\n")
    [length] = [int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.startswith(b"content-len")]
    await reader.readexactly(length)
    return int(head.split()[1]), head


async def is_closed(streams: Streams) -> bool:
    """Wait until the server has ended a connection."""
    reader, writer = streams
    try:
        return await asyncio.wait_for(reader.read(), timeout=30) == b""
    except ConnectionError:
        return True
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("sent", [WHOLE[:20], WHOLE[:-1]])
async def test_a_request_that_never_ends_is_cut(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol, "RECEIVE_S", 0.1)
    async with serving() as (_, port):
        streams = await dial(port)
        streams[1].write(sent)

        assert await is_closed(streams)


async def test_a_connection_on_which_nothing_is_asked_is_closed() -> None:
    async with serving() as (server, port):
        server.config.timeout_keep_alive = 0

        assert await is_closed(await dial(port))


async def test_bytes_that_are_no_request_do_not_keep_a_connection() -> None:
    """Empty lines may stand before a request, and none has to follow."""
    async with serving() as (server, port):
        server.config.timeout_keep_alive = 1
        streams = await dial(port)
        streams[1].write(b"\r\n")

        assert await is_closed(streams)


async def test_a_refused_head_does_not_keep_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "RECEIVE_S", 0.1)
    async with serving() as (_, port):
        streams = await dial(port)
        streams[1].write(b"GET / HTTP/1.1\r\nX-Long: " + b"x" * 2**20)
        await streams[1].drain()

        assert (await status_of(streams))[0] == 431
        assert await is_closed(streams)


async def test_while_it_drains_it_answers_and_asks_clients_to_connect_elsewhere() -> None:
    """Connections from before and new ones alike; only then does nobody listen any more."""
    async with serving(delay_s=1) as (server, port):
        before = await dial(port)
        server.should_exit = True
        async with asyncio.timeout(30):
            while True:
                new = await dial(port)
                new[1].write(WHOLE)
                status, head = await status_of(new)
                assert status == 200
                new[1].transport.abort()
                if b"connection: close" in head:
                    break
        before[1].write(WHOLE)

        status, head = await status_of(before)

        assert status == 200
        assert b"connection: close" in head
        assert await is_closed(before)


@pytest.mark.parametrize("said", [b"", WHOLE, request(review_body(), b"Connection: close")])
async def test_the_end_waits_for_no_client_that_does_not_close(
    said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it was never asked, or is idle, or was told to close."""
    with ExitStack() as clients:
        async with serving() as (_, port):
            wire = await asyncio.to_thread(clients.enter_context, Wire.to(port))
            if said:
                wire.say(said)
                await asyncio.to_thread(wire.answer)

    assert "timeout graceful shutdown exceeded" not in caplog.text
