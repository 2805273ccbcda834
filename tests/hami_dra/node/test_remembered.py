"""What containers need is found out again when it may have changed, and not at every look."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hami_dra.node.backend import BackendError
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.inventory import Card
from hami_dra.node.remembered import AGAIN_S, Remembered
from tests.hami_dra.node.claims import CARDS


class Toolkit:
    """Counts how often it is asked.

    Attributes:
        asked: with which cards, each time.
        failure: what it says in place of an answer; empty for none.
    """

    def __init__(self) -> None:
        self.asked: list[Sequence[Card]] = []
        self.failure = ""

    def __call__(self, cards: Sequence[Card]) -> NodeEdits:
        """Answer, differently each time."""
        self.asked.append(cards)
        if self.failure:
            raise BackendError(self.failure)
        return NodeEdits({"env": [f"TIMES={len(self.asked)}"]})


def test_an_agent_with_nothing_to_do_asks_once_in_a_while() -> None:
    toolkit, clock = Toolkit(), [0.0]
    find = Remembered(toolkit, now=lambda: clock[0])

    first = find(CARDS)
    clock[0] = AGAIN_S - 1
    assert find(CARDS) is first
    clock[0] = AGAIN_S
    assert find(CARDS) != first
    assert len(toolkit.asked) == 2


def test_another_card_or_driver_is_asked_about_at_once() -> None:
    toolkit = Toolkit()
    find = Remembered(toolkit)
    newer = [replace(each, driver_version="999.1") for each in CARDS]

    for cards in (CARDS, CARDS[:1], newer, newer):
        find(cards)

    assert toolkit.asked == [CARDS, CARDS[:1], newer]


def test_a_file_that_changed_is_read_at_once(tmp_path: Path) -> None:
    toolkit, file = Toolkit(), tmp_path / "nvidia.yaml"
    find = Remembered(toolkit, files=[file])

    found = [find(CARDS), find(CARDS)]
    file.write_text("one")
    found += [find(CARDS), find(CARDS)]
    file.write_text("other")
    found += [find(CARDS), find(CARDS)]
    file.unlink()
    found.append(find(CARDS))

    assert [each.common["env"] for each in found] == [
        [f"TIMES={number}"] for number in (1, 1, 2, 2, 3, 3, 4)
    ]


def test_a_failure_is_not_remembered_and_ends_what_was() -> None:
    toolkit, clock = Toolkit(), [0.0]
    find = Remembered(toolkit, now=lambda: clock[0])
    find(CARDS)
    clock[0], toolkit.failure = AGAIN_S, "the toolkit fails"

    for _ in range(2):
        with pytest.raises(BackendError, match="the toolkit fails"):
            find(CARDS)
    toolkit.failure = ""

    assert find(CARDS).common["env"] == ["TIMES=4"]
