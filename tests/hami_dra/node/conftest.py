"""The double of the API server, as the tests of `hami_dra.kube` have it, and room for sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hami_dra.kube.conftest import api, session

__all__ = ["api", "session"]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return an empty directory; a socket's path holds 107 bytes, and pytest's own are long."""
    with tempfile.TemporaryDirectory(prefix="hd-") as short:
        yield Path(short)
