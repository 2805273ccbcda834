"""Texts as documents: put together again they are the text."""

from typing import Any

import pytest

from hami_dra.cli.documents import split


class Counting(str):
    """A text that tells how many of its characters were looked at for line breaks."""

    __slots__ = ("seen",)
    seen: int

    def count(self, *arguments: Any) -> int:  # noqa: ANN401 - as the built-in one
        """Count, and note between which positions."""
        _, start, end = arguments
        self.seen += end - start
        return super().count(*arguments)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("---\n".join(["# one\na: 1\n--- # two\nb: 2\n"] * 3), [1, 4, 6, 9, 11, 14]),
        ('{\n"a": 1}\n{"b": 2}\n' * 3, [1, 3, 4, 6, 7, 9]),
    ],
)
def test_the_lines_of_a_stream_are_counted_once(text: str, lines: list[int]) -> None:
    """Each time from the start, 20,000 documents took minutes."""
    counting = Counting(text)
    counting.seen = 0

    found = list(split("x", counting))

    assert [document.line for document in found] == lines
    assert "".join(document.lead + document.text for document in found) == text
    assert counting.seen <= len(text)
