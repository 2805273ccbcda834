"""Wait for a condition; the only place where the lab sleeps.

The keeper process imports it, so it must import nothing heavy.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 180.0
"""When to give up by default: long enough for a slow machine that does other work, because it only
decides how long a failure takes."""

# Pauses grow by the first factor up to the second: soon enough at first, cheap in the long run.
_GROWTH = 1.2
_MOST_GROWTH = 10


def until(
    condition: Callable[[], T | None],
    *,
    what: str,
    timeout_s: float = PATIENCE_S,
    every_s: float = 0.05,
    tolerate: tuple[type[Exception], ...] = (OSError,),
) -> T:
    """Poll until the condition returns something other than None or False, and return that.

    Args:
        condition: what is asked, at least once however small the timeout is.
        what: what is awaited, for the error: "the API server is ready".
        timeout_s: when to give up.
        every_s: the first pause; later ones grow to ten times as much.
        tolerate: exceptions of the condition that mean "not yet"; others pass through.

    Raises:
        TimeoutError: names what was awaited and the last answer or exception.
    """
    end = time.monotonic() + timeout_s
    pause_s = every_s
    while True:
        last: object
        cause: Exception | None = None
        try:
            value = condition()
        except tolerate as error:
            last = cause = error
        else:
            if value is not None and value is not False:
                return value
            last = value
        left_s = end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"waited {timeout_s:g} s until {what}; last: {last!r}") from cause
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * _GROWTH, every_s * _MOST_GROWTH)
