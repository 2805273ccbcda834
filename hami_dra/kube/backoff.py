"""Waiting longer after each failure, so that a troubled API server is not made worse by us."""

import asyncio
import random
from collections.abc import Callable


class Backoff:
    """Delays that double up to a limit, each shortened at random by up to a half.

    Args:
        initial_s: the longest first delay.
        limit_s: the longest delay of all.
        chance: returns numbers in 0..1; replicas must differ, or they all return at once.
    """

    def __init__(
        self,
        *,
        initial_s: float = 0.2,
        limit_s: float = 30.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.limit_s = limit_s
        self._initial_s = initial_s
        self._chance = chance
        self._failures = 0

    def reset(self) -> None:
        """Start over: the last attempt worked."""
        self._failures = 0

    def next_s(self) -> float:
        """Count a failure and return the delay that follows it."""
        longest = min(self.limit_s, self._initial_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return longest * (1 - self._chance() / 2)

    async def wait(self) -> None:
        """Count a failure and sleep off its delay."""
        await asyncio.sleep(self.next_s())
