"""Do what waits together, so that it shares its writes of the checkpoint.

A piece of work is a generator. At each `yield` it asks that all it has changed so far be written
down, and goes on when that is done, or with the error that kept it from being done. Thirty claims
that come at once then cost two writes and not sixty, in one thread that nobody has to wait for.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Work: TypeAlias = Generator[None, None, T]
"""Work that returns a value; each `yield` waits until what was changed before it is written."""

Done: TypeAlias = "Exception | Returned"
"""How a piece of work ended."""

_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Returned:
    """What a piece of work returned."""

    value: Any


def together(works: Sequence[Work[Any]], write: Callable[[], None]) -> list[Done]:
    """Do works side by side, in their order, with one write for all that wait for one.

    An error of one is that one's end and does not hurt the others.

    Args:
        works: what to do.
        write: writes down what all of them have changed; an OSError of it is told to all that wait.
    """
    done: dict[int, Done] = {}
    running = dict(enumerate(works))
    failure: OSError | None = None
    while running:
        for number, work in tuple(running.items()):
            try:
                work.send(None) if failure is None else work.throw(failure)
            except StopIteration as end:
                done[number] = Returned(end.value)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's own
                done[number] = error
            if number in done:
                del running[number]
        failure = None
        if running:
            try:
                write()
            except OSError as error:
                failure = error
    return [done[number] for number in range(len(works))]


def value(done: Done) -> Any:  # noqa: ANN401 - of whatever the work returns
    """Return what a piece of work returned, or raise what ended it."""
    if isinstance(done, Exception):
        raise done
    return done.value


class Worker:
    """A thread that does work; what comes while it is busy is done together next.

    Args:
        do: does works side by side.
    """

    def __init__(self, do: Callable[[Sequence[Work[Any]]], Sequence[Done]]) -> None:
        self._do = do
        self._waiting: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="claims", daemon=True)
        self._thread.start()

    async def done(self, work: Work[T]) -> T:
        """Have work done and return its value; a caller that leaves before it begins stops it."""
        found: T = await asyncio.wrap_future(self.begin(work))
        return found

    def begin(self, work: Work[Any]) -> "Future[Any]":
        """Have work done; called from any thread.

        Raises:
            RuntimeError: if the worker is closed.
        """
        if self._is_closed:
            raise RuntimeError("the agent is stopping")
        job = _Job(work, Future())
        self._waiting.put(job)
        return job.future

    def close(self) -> None:
        """Wait until all that was begun is done."""
        self._is_closed = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        is_open = True
        while is_open:
            jobs, is_open = self._next()
            wanted = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            try:
                ended = self._do([job.work for job in wanted])
            except Exception as error:  # noqa: BLE001 - nobody can begin: each is told
                ended = [error] * len(wanted)
            for job, done in zip(wanted, ended, strict=True):
                if isinstance(done, Exception):
                    job.future.set_exception(done)
                else:
                    job.future.set_result(done.value)

    def _next(self) -> tuple[list["_Job"], bool]:
        """Wait for work; return all that there is, and whether more may come."""
        jobs: list[_Job] = []
        while not jobs or (len(jobs) < _MOST and not self._waiting.empty()):
            job = self._waiting.get()
            if job is None:
                return jobs, False
            jobs.append(job)
        return jobs, True


@dataclass(frozen=True, slots=True)
class _Job:
    work: Work[Any]
    future: "Future[Any]"
