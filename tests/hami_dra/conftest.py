"""A double of the API server and a session with it, and room for sockets."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from hami_dra.kube.session import Session
from tests.hami_dra.kube.api_double import ApiDouble


@pytest_asyncio.fixture
async def api() -> AsyncIterator[ApiDouble]:
    async with ApiDouble().serving() as double:
        yield double


@pytest_asyncio.fixture
async def session(api: ApiDouble, tmp_path: Path) -> AsyncIterator[Session]:
    config = api.write_kubeconfig(tmp_path / "kubeconfig")
    async with await Session.connect(config) as connected:
        yield connected


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return an empty directory; a socket's path holds 107 bytes, and pytest's own are long."""
    with tempfile.TemporaryDirectory(prefix="hd-") as short:
        yield Path(short)
