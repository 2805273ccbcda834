"""Keep up what an agent does beside its calls: an error that nobody foresaw must not end it.

While there is no agent, pods of the node neither start nor end, and one that ends again and again
is started ever later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

PAUSE_S: Final = 30.0
"""Seconds after a failure until it begins anew."""

_log = logging.getLogger(__name__)


async def kept_up(
    name: str, run: Callable[[], Awaitable[None]], *, pause_s: float = PAUSE_S
) -> None:
    """Run something until cancelled, anew after each failure.

    Args:
        name: for the log.
        run: what is not meant to end.
        pause_s: see `PAUSE_S`.
    """
    while True:
        try:
            await run()
        except Exception:  # noqa: BLE001 - whatever it is, it is told
            _log.exception("%s failed, which is a defect; it begins anew", name)
        await asyncio.sleep(pause_s)
