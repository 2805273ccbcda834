"""A connection on which nothing is said for as long as an API server might keep it."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from hami_dra.migration import Json
from tests.webhook.wire import Wire

IDLE_S: Final = 120.0

Idle = Future[tuple[bool, Json]]
"""Whether the server closed it meanwhile, and the answer to a review afterwards."""


@contextmanager
def idling(port: int) -> Iterator[Idle]:
    """Ask once, say nothing for a while, and ask again; all of that beside other work."""

    def work() -> tuple[bool, Json]:
        with Wire.to(port) as wire:
            wire.review()
            was_closed = wire.is_closed_within(IDLE_S)
            return was_closed, {} if was_closed else wire.review()

    pool = ThreadPoolExecutor(1, thread_name_prefix="idle")
    try:
        yield pool.submit(work)
    finally:
        # A run that ends earlier need not wait for it.
        pool.shutdown(wait=False, cancel_futures=True)
