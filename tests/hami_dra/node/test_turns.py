"""Agents of one node take turns, also when the lock's file is taken away between two of them."""

import os
from pathlib import Path
from threading import Event, Thread

from hami_dra.lab.wait import until
from hami_dra.node.turns import Turns


def test_who_waited_for_a_file_that_was_removed_locks_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    leaving, waiting, third = (Turns(path, lambda: None) for _ in range(3))
    begun, end = Event(), Event()

    def work() -> None:
        with waiting.turn():
            begun.set()
            end.wait(60)

    thread = Thread(target=work)
    with leaving.turn():
        thread.start()
        until(lambda: openings(path) == 2, what="the other one waits")
        path.unlink()
    try:
        assert begun.wait(60)
        # Were it the removed file that is locked, a third one would not wait.
        late = Event()
        other = Thread(target=lambda: late.set() if entered(third) else None)
        other.start()
        until(lambda: openings(path) == 2, what="the third one waits")
        assert not late.is_set()
    finally:
        end.set()
        thread.join()
    other.join()
    assert late.is_set()


def entered(turns: Turns) -> bool:
    with turns.turn():
        return True


def openings(path: Path) -> int:
    """Count this process's open files of a name."""
    found = [each.path for each in os.scandir("/proc/self/fd")]
    return sum(readable(each) == str(path) for each in found)


def readable(link: str) -> str:
    try:
        return str(Path(link).readlink())
    except OSError:
        return ""
