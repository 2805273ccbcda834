"""What a webhook shows to whoever dials it."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import KeyPair, Usage, create_authority, issue
from hami_dra.lab.ports import free_ports
from hami_dra.migration import Json
from hami_dra.preflight.dial import ask
from hami_dra.preflight.evidence import Hidden, Served

READY = b'{"missing": [], "degraded": {"x": "y"}}'


def authority() -> KeyPair:
    return create_authority("test", now=datetime.now(UTC), lifetime=timedelta(days=9))


def trusting(*pairs: KeyPair) -> Json:
    bundle = b"".join(pair.certificate_pem for pair in pairs)
    return {"caBundle": base64.b64encode(bundle).decode()}


@asynccontextmanager
async def serving(signer: KeyPair, directory: Path, body: bytes = READY) -> AsyncIterator[str]:
    """Serve one answer on loopback."""
    leaf = issue(
        signer,
        common_name="w",
        usages=[Usage.SERVER],
        now=datetime.now(UTC),
        lifetime=timedelta(days=1),
        ip_addresses=["127.0.0.1"],
    )
    (directory / "crt").write_bytes(leaf.certificate_pem)
    (directory / "key").write_bytes(leaf.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "crt", directory / "key")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readline():
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mutate"


async def test_a_webhook_that_fits_shows_its_certificate_and_its_health(tmp_path: Path) -> None:
    signer = authority()

    async with serving(signer, tmp_path) as url:
        found = await ask(url, trusting(signer))

    assert found == Served(
        (tmp_path / "crt").read_bytes(), "", {"missing": [], "degraded": {"x": "y"}}
    )


async def test_an_answer_that_comes_in_pieces_is_read_to_its_end(tmp_path: Path) -> None:
    """A server writes head and body apart; this one is more than any single read returns."""
    ready = {"missing": [], "degraded": {"x": "y" * 700_000}}

    async with serving(authority(), tmp_path, json.dumps(ready).encode()) as url:
        found = await ask(url, {})

    assert isinstance(found, Served)
    assert found.ready == ready


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (trusting(authority()), "certificate"),
        ({"caBundle": "eA=="}, ""),
        ({}, "has no caBundle"),
        ({"caBundle": "!"}, "not base64"),
    ],
)
async def test_a_bundle_that_does_not_fit_is_told(tmp_path: Path, config: Json, said: str) -> None:
    async with serving(authority(), tmp_path) as url:
        found = await ask(url, config)

    assert isinstance(found, Served)
    assert found.distrust
    assert said in found.distrust


@pytest.mark.parametrize("body", [b"", b"not json", b"[]"])
async def test_an_answer_that_is_none_is_no_health(tmp_path: Path, body: bytes) -> None:
    async with serving(authority(), tmp_path, body) as url:
        found = await ask(url, {})

    assert isinstance(found, Served)
    assert found.ready is None


async def test_a_webhook_out_of_reach_is_hidden() -> None:
    [port] = free_ports(1)

    found = await ask(f"https://127.0.0.1:{port}/", {})

    assert isinstance(found, Hidden)
    assert f"127.0.0.1:{port} cannot be reached from here" in found.reason
