"""Have works done side by side, as those of calls that come at one time."""

from collections.abc import Callable, Sequence
from typing import Any

from hami_dra.node.work import Done, Job, Take, Work


def in_order(together: Callable[[Take], None], works: Sequence[Work[Any]]) -> list[Done]:
    """Have works done side by side; return how each ended, in their order."""
    done: dict[int, Done] = {}
    waiting = [
        Job(work, lambda end, number=number: done.update({number: end}))  # type: ignore[misc]
        for number, work in enumerate(works)
    ]

    def take() -> list[Job]:
        taken = waiting.copy()
        waiting.clear()
        return taken

    together(take)
    return [done[number] for number in range(len(works))]
