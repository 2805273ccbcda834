"""Do what waits together, so that it shares its writes of the checkpoint.

A piece of work is a generator. At each `yield` it asks that all it has changed so far be written
down, and goes on when that is done, or with the error that kept it from being done. What comes
meanwhile joins before the next write, so that each write is the second one of some claims and the
first one of others: eight claims at a time cost fewer writes than claims, in one thread that
nobody has to wait for.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Work: TypeAlias = Generator[None, None, T]
"""Work that returns a value; each `yield` waits until what was changed before it is written."""

Done: TypeAlias = "Exception | Returned"
"""How a piece of work ended."""

Take: TypeAlias = "Callable[[], Iterable[Job]]"
"""Return what has come since it was called last; never waits."""

# Nobody else gets a turn while work is in progress, so what comes later waits for the next one.
_MOST_IN_A_TURN: Final = 64


@dataclass(frozen=True, slots=True)
class Returned:
    """What a piece of work returned."""

    value: Any


def value(done: Done) -> Any:  # noqa: ANN401 - of whatever the work returns
    """Return what a piece of work returned, or raise what ended it."""
    if isinstance(done, Exception):
        raise done
    return done.value


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Job:
    """A piece of work and who waits for it.

    Attributes:
        work: what to do.
        end: told how it ended, in the thread that did it.
        is_wanted: asked before it begins; whoever waited may have left.
    """

    work: Work[Any]
    end: Callable[[Done], None]
    is_wanted: Callable[[], bool] = _always


def together(take: Take, write: Callable[[], None]) -> None:
    """Do jobs side by side, in their order, until none is left.

    An error of one is that one's end and does not hurt the others.

    Args:
        take: asked for more before each write.
        write: writes down what all of them have changed; an error of it is told to all that wait.
    """
    running: list[Job] = []
    failure: Exception | None = None
    while True:
        running = [job for job in running if _goes_on(job, failure)]
        running += [job for job in take() if _goes_on(job)]
        if not running:
            return
        failure = _error_of(write)


def _goes_on(job: Job, failure: Exception | None = None) -> bool:
    """Do the next part of a job; tell whether it waits to be written down, or end it."""
    try:
        job.work.send(None) if failure is None else job.work.throw(failure)
    except StopIteration as end:
        job.end(Returned(end.value))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this one's own
        job.end(error)
    else:
        return True
    return False


def _error_of(write: Callable[[], None]) -> Exception | None:
    try:
        write()
    except Exception as error:  # noqa: BLE001 - told to whoever waits for it
        return error
    return None


class Worker:
    """A thread that does work; what comes while it is busy joins what it is doing.

    Args:
        do: does the jobs that it is given, side by side, and those that come meanwhile.
    """

    def __init__(self, do: Callable[[Take], None]) -> None:
        self._do = do
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._first: Job | None = None
        self._room = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="claims", daemon=True)
        self._thread.start()

    async def done(self, work: Work[T]) -> T:
        """Have work done and return its value; a caller that leaves before it begins stops it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def end(done: Done) -> None:
            loop.call_soon_threadsafe(_settle, future, done)

        self.begin(Job(work, end, lambda: not future.cancelled()))
        return await future

    def begin(self, job: Job) -> None:
        """Have a job done; called from any thread.

        Raises:
            RuntimeError: if the worker is closed.
        """
        if self._is_closed:
            raise RuntimeError("the agent is stopping")
        self._waiting.put(job)

    def close(self) -> None:
        """Wait until all that was begun is done."""
        self._is_closed = True
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            self._first, self._room = first, _MOST_IN_A_TURN
            try:
                self._do(self._take)
            except Exception as error:  # noqa: BLE001 - nobody can begin: each is told
                for job in self._take():
                    job.end(error)

    def _take(self) -> Iterator[Job]:
        """Yield what waits, as far as there is room for it in this turn."""
        first, self._first = self._first, None
        if first is not None and first.is_wanted():
            yield first
        while self._room:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return
            if job is None:
                # The end of the thread, which comes after this turn.
                self._waiting.put(None)
                return
            self._room -= 1
            if job.is_wanted():
                yield job


def _settle(future: "asyncio.Future[Any]", done: Done) -> None:
    """Tell who waits, unless they have left."""
    if future.cancelled():
        return
    if isinstance(done, Exception):
        future.set_exception(done)
    else:
        future.set_result(done.value)
