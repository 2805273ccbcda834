"""Room for sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return an empty directory; a socket's path holds 107 bytes, and pytest's own are long."""
    with tempfile.TemporaryDirectory(prefix="hd-") as short:
        yield Path(short)
