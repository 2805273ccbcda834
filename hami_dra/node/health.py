"""Tell the kubelet how the cards are, which people then read in the status of their pods."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from hami_dra.node.messages import DeviceHealth, Health

TIMEOUT_S: Final = 30
"""Seconds after which the kubelet takes silence for unknown health."""

RESEND_S: Final = 10.0


class HealthBoard:
    """The last known health of every device, for any number of streams.

    Args:
        pool: the devices' pool.
        clock: seconds since 1970.
        resend_s: how often an unchanged list is sent again.
    """

    def __init__(
        self, pool: str, *, clock: Callable[[], float] = time.time, resend_s: float = RESEND_S
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._resend_s = resend_s
        self._troubles: dict[str, str] = {}
        self._news = asyncio.Event()
        self._is_closed = False

    def show(self, devices: Iterable[tuple[str, str]]) -> None:
        """Replace the list.

        Args:
            devices: name and trouble of each; an empty trouble means healthy.
        """
        troubles = dict(devices)
        if troubles != self._troubles:
            self._troubles = troubles
            self._tell()

    def close(self) -> None:
        """End every stream, which a server that stops would wait for and which else never end."""
        self._is_closed = True
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def now(self) -> tuple[DeviceHealth, ...]:
        """Return the complete list, as of now."""
        return tuple(
            DeviceHealth(
                pool=self._pool,
                device=name,
                health=Health.UNHEALTHY if trouble else Health.HEALTHY,
                updated_s=int(self._clock()),
                timeout_s=TIMEOUT_S,
                message=trouble,
            )
            for name, trouble in self._troubles.items()
        )

    async def stream(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """Yield the complete list at once, after every change and before it goes stale."""
        while not self._is_closed:
            news = self._news
            yield self.now()
            try:
                async with asyncio.timeout(self._resend_s):
                    await news.wait()
            except TimeoutError:
                continue
