"""On a real connection: what HTTP allows is answered in order, and what ends early harms nobody."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio

from hami_dra.kube.templates import MemoryTemplates
from hami_dra.migration import Json
from tests.webhook.reviews import gpu_pod, review_of
from webhook.app import LARGEST_BODY, Dependencies, create_app
from webhook.server import Server
from webhook.standalone import LOOPBACK, made_up_certificate


@dataclass(frozen=True, slots=True)
class Connection:
    """One connection of a client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, body: bytes, *headers: str, path: str = "/mutate", method: str = "POST") -> None:
        """Send a request; without a header of its own, the body's length is stated."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
        if not headers:
            lines.append(f"Content-Length: {len(body)}")
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def status(self) -> int:
        """Read the head of an answer as far as the status; what follows is left."""
        line = await asyncio.wait_for(self.reader.readline(), timeout=30)
        return int(line.split()[1])

    async def answer(self) -> tuple[int, Json]:
        """Read an answer."""
        status = await self.status()
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), timeout=30)
        fields = dict(line.lower().split(": ") for line in head.decode().strip().split("\r\n"))
        body = await self.reader.readexactly(int(fields["content-length"]))
        return status, json.loads(body)


class Served:
    """A webhook that listens."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._port = int(url.rpartition(":")[2])
        self._context = context
        self._opened: list[Connection] = []

    async def connect(self) -> Connection:
        """Open a connection."""
        opened = await asyncio.open_connection(LOOPBACK, self._port, ssl=self._context)
        self._opened.append(Connection(*opened))
        return self._opened[-1]

    async def close(self) -> None:
        """Close what was opened."""
        for connection in self._opened:
            connection.writer.close()
            with suppress(OSError):
                await connection.writer.wait_closed()


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    app = create_app(Dependencies(templates=MemoryTemplates()))
    with made_up_certificate(LOOPBACK) as (certificate, authority):
        server = Server(app, certificate, host=LOOPBACK, port=0, announce=started.set_result)
        serving = asyncio.create_task(server.serve())
        url = await asyncio.wait_for(started, timeout=30)
        made = Served(url, ssl.create_default_context(cafile=authority))
        yield made
        await made.close()
        server.should_exit = True
        await asyncio.wait_for(serving, timeout=30)


def review(uid: str) -> bytes:
    return json.dumps(review_of(gpu_pod(gpu="1"), uid=uid)).encode()


async def test_a_connection_carries_many_reviews(served: Served) -> None:
    connection = await served.connect()
    for uid in ("a", "b", "c"):
        connection.send(review(uid))
        status, answer = await connection.answer()

        assert (status, answer["response"]["uid"]) == (200, uid)


async def test_reviews_sent_ahead_are_answered_in_order(served: Served) -> None:
    connection = await served.connect()
    for uid in ("a", "b", "c"):
        connection.send(review(uid))

    for uid in ("a", "b", "c"):
        assert (await connection.answer())[1]["response"]["uid"] == uid


async def test_a_body_in_chunks_is_read_whole(served: Served) -> None:
    body = review("chunked")
    parts = [body[at : at + 100] for at in range(0, len(body), 100)]
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts]
    connection = await served.connect()
    connection.send(b"", "Transfer-Encoding: chunked")
    for chunk in [*chunks, b"0\r\n\r\n"]:
        connection.writer.write(chunk)
        await connection.writer.drain()

    assert (await connection.answer())[1]["response"]["uid"] == "chunked"


async def test_a_client_that_asks_first_is_told_to_go_on(served: Served) -> None:
    body = review("asked")
    connection = await served.connect()
    connection.send(b"", f"Content-Length: {len(body)}", "Expect: 100-continue")

    assert await connection.status() == 100
    await connection.reader.readline()
    connection.writer.write(body)
    assert (await connection.answer())[1]["response"]["uid"] == "asked"


async def test_a_body_beyond_the_limit_is_refused_before_it_ends(served: Served) -> None:
    connection = await served.connect()
    connection.send(b" " * (LARGEST_BODY + 1), f"Content-Length: {10 * LARGEST_BODY}")

    assert await connection.status() == 413


@pytest.mark.parametrize("sent", [b"", b'{"apiVersion":'])
async def test_who_leaves_in_the_middle_of_a_review_harms_nobody(
    served: Served, sent: bytes
) -> None:
    leaving = await served.connect()
    leaving.send(sent, "Content-Length: 1000")
    await leaving.writer.drain()
    leaving.writer.transport.abort()

    connection = await served.connect()
    connection.send(review("after"))

    assert (await connection.answer())[1]["response"]["uid"] == "after"


async def test_other_pages_are_served_on_the_same_connection(served: Served) -> None:
    connection = await served.connect()
    connection.send(review("first"))
    await connection.answer()
    connection.send(b"", method="GET", path="/readyz")

    assert await connection.answer() == (200, {"missing": []})
