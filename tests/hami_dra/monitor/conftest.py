"""A node with a kubelet that tells who has which claim."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hami_dra.monitor.world import World, listening


@pytest.fixture
def world(tmp_path: Path, short_path: Path) -> Iterator[World]:
    made = World(tmp_path, short_path / "kubelet.sock")
    with listening(made.kubelet, made.socket):
        yield made
