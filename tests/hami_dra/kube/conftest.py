"""Backoffs that cost a test no time."""

from collections.abc import Callable

import pytest

from hami_dra.kube.backoff import Backoff


@pytest.fixture
def backoff() -> Callable[[], Backoff]:
    return lambda: Backoff(initial_s=0.001, limit_s=0.01)
