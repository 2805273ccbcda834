"""Work that is done side by side shares its writes, and nobody hears of another one's trouble."""

import asyncio
from collections.abc import Iterable, Iterator
from threading import Event

import pytest

from hami_dra.node.work import Done, Job, Returned, Take, Work, Worker, together
from tests.hami_dra.node.works import in_order


def steps(said: list[str], name: str, count: int) -> Work[str]:
    """Work that asks so often that all be written down."""
    for number in range(count):
        said.append(f"{name}{number}")
        yield
    return name


def test_all_that_wait_share_a_write_and_end_in_their_order() -> None:
    said: list[str] = []

    done = in_order(
        lambda take: together(take, lambda: said.append("write")),
        [steps(said, "a", 2), steps(said, "b", 1), steps(said, "c", 2)],
    )

    assert [each.value for each in done if isinstance(each, Returned)] == ["a", "b", "c"]
    assert said == ["a0", "b0", "c0", "write", "a1", "c1", "write"]


def test_what_comes_meanwhile_joins_the_next_write() -> None:
    said: list[str] = []
    ends: list[Done] = []
    comes = iter([["a"], ["b"], ["c"]])

    def take() -> Iterator[Job]:
        for name in next(comes, ()):
            yield Job(steps(said, name, 2), ends.append)

    together(take, lambda: said.append("write"))

    assert said == ["a0", "write", "a1", "b0", "write", "b1", "c0", "write", "c1", "write"]
    assert len(ends) == 3


def test_a_write_that_fails_is_told_to_those_who_waited_for_it_alone() -> None:
    said: list[str] = []
    ends: dict[str, Done] = {}
    comes = iter([["early"], ["late"]])
    fails = iter([True])

    def take() -> Iterator[Job]:
        for name in next(comes, ()):
            yield Job(steps(said, name, 1), lambda done, name=name: ends.update({name: done}))  # type: ignore[misc]

    def write() -> None:
        if next(fails, False):
            raise OSError("full")

    together(take, write)

    assert isinstance(ends["early"], OSError)
    assert ends["late"] == Returned("late")


def test_a_failure_that_nobody_foresaw_ends_its_own_work_alone() -> None:
    def broken() -> Work[str]:
        yield
        raise ZeroDivisionError

    first, second = in_order(
        lambda take: together(take, lambda: None), [broken(), steps([], "b", 3)]
    )

    assert isinstance(first, ZeroDivisionError)
    assert second == Returned("b")


def busy(worker: Worker) -> tuple[Event, Event]:
    """Keep a worker busy until the second event; the first tells that it is."""
    begun, end = Event(), Event()

    def work() -> Work[None]:
        begun.set()
        end.wait(60)
        yield from ()

    worker.begin(Job(work(), lambda _: None))
    assert begun.wait(60)
    return begun, end


def test_a_caller_that_leaves_before_its_work_begins_stops_it() -> None:
    said: list[str] = []
    worker = Worker(lambda take: together(take, lambda: None))
    _, end = busy(worker)

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.done(steps(said, "left", 1)), 0.01)
        staying = asyncio.ensure_future(worker.done(steps(said, "stays", 1)))
        end.set()
        assert await staying == "stays"

    asyncio.run(leave())
    worker.close()
    assert said == ["stays0"]


def test_a_turn_ends_however_much_comes_so_that_another_agent_gets_one() -> None:
    turns: list[int] = []

    def do(take: Take) -> None:
        turns.append(0)

        def counted() -> Iterable[Job]:
            for job in take():
                turns[-1] += 1
                yield job

        together(counted, lambda: None)

    worker = Worker(do)
    _, end = busy(worker)
    for _ in range(200):
        worker.begin(Job(steps([], "x", 1), lambda _: None))
    end.set()
    worker.close()

    assert sum(turns) == 201
    assert max(turns) <= 65


def test_all_hear_of_it_when_nobody_can_begin() -> None:
    def refuse(_: Take) -> None:
        raise ValueError("not this time")

    worker = Worker(refuse)

    async def ask() -> None:
        calls = [worker.done(steps([], "x", 1)) for _ in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(each) for each in answers] == ["not this time"] * 5

    asyncio.run(ask())
    worker.close()
    with pytest.raises(RuntimeError, match="stopping"):
        worker.begin(Job(steps([], "x", 1), lambda _: None))
