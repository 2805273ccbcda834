"""Remember what containers need, which costs more to find out than all else of an idle agent."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hami_dra.node.backend import FindEdits
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.inventory import Card

AGAIN_S: Final = 600.0
"""Seconds after which it is found out anew although nothing seems to have changed."""


class Remembered:
    """Finds out anew when the cards or a file changed, and now and then; for one thread.

    A failure is not remembered: it may end at any time.

    Args:
        find: finds out.
        files: what it reads, as far as that is known.
        now: seconds of any clock.
    """

    def __init__(
        self,
        find: FindEdits,
        *,
        files: Sequence[Path] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find = find
        self._files = files
        self._now = now
        self._until = 0.0
        self._made_of: tuple[object, ...] = ()
        self._found: NodeEdits | None = None

    def __call__(self, cards: Sequence[Card]) -> NodeEdits:
        """Return what containers need to use these cards.

        Raises:
            BackendError: if that cannot be found out.
        """
        made_of = (*cards, *map(_state, self._files))
        if self._found is None or made_of != self._made_of or self._now() >= self._until:
            self._found = None
            found = self._find(cards)
            self._found, self._made_of, self._until = found, made_of, self._now() + AGAIN_S
        return self._found


def _state(path: Path) -> tuple[int, ...]:
    """Return what changes with a file; empty while there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
