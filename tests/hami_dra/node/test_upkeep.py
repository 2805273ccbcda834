"""What runs beside the calls goes on after errors that nobody foresaw."""

import asyncio

import pytest

from hami_dra.node.upkeep import kept_up


async def test_it_begins_anew_after_a_failure_and_ends_when_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun: list[int] = []
    again = asyncio.Event()

    async def run() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise KeyError("uid")
        again.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(kept_up("part", run, pause_s=0))
    await asyncio.wait_for(again.wait(), 30)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert caplog.text.count("part failed") == 2
