"""`until` returns what it waited for, or says what it waited for in vain."""

import pytest

from hami_dra.lab.wait import until


def test_the_first_answer_is_returned() -> None:
    answers = iter([None, None, "here"])

    assert until(lambda: next(answers), what="it is here", every_s=0) == "here"


def test_zero_and_empty_are_answers() -> None:
    """Only None and False mean "not yet"."""
    assert until(lambda: 0, what="a number") == 0
    assert until(lambda: "", what="a text") == ""


def test_false_means_not_yet() -> None:
    answers = iter([False, True])

    assert until(lambda: next(answers), what="it is true", every_s=0) is True


def test_in_vain_names_what_was_awaited_and_the_last_answer() -> None:
    with pytest.raises(TimeoutError, match=r"waited 0 s until the moon rises; last: False"):
        until(lambda: False, what="the moon rises", timeout_s=0)


def test_in_vain_names_and_chains_the_last_exception() -> None:
    def refuse() -> None:
        raise ConnectionRefusedError("nobody listens")

    with pytest.raises(TimeoutError, match="nobody listens") as error:
        until(refuse, what="somebody listens", timeout_s=0.01, every_s=0.001)

    assert isinstance(error.value.__cause__, ConnectionRefusedError)


def test_an_exception_that_is_not_tolerated_passes_through() -> None:
    answers: dict[str, int] = {}

    with pytest.raises(KeyError):
        until(lambda: answers["key"], what="never", timeout_s=60)


def test_a_caller_chooses_what_is_tolerated() -> None:
    answers: dict[str, int] = {}

    def ask() -> int:
        try:
            return answers["key"]
        finally:
            answers["key"] = 1

    assert until(ask, what="a key", every_s=0, tolerate=(KeyError,)) == 1
