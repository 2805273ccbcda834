"""A rate is that of the second half, when no allowance for bursts is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.preflight.measure import per_second


def test_a_burst_at_the_start_does_not_hide_the_rate() -> None:
    throttled = [0.0] * 15 + [number / 10 for number in range(1, 46)]

    assert per_second(throttled) == pytest.approx(10, rel=0.01)


def test_claims_that_come_at_once_have_a_rate_too() -> None:
    assert per_second([1.0] * 60) == 1200


def test_looks_that_are_far_apart_do_not_hurry_the_rate() -> None:
    """Fifty were there when the thirtieth was first seen, so ten came in the last second."""
    assert per_second([0.0] * 10 + [4.0] * 40 + [5.0] * 10) == 10


@given(st.lists(st.floats(0, 1e6), min_size=2))
def test_a_rate_is_always_a_positive_number(moments: list[float]) -> None:
    assert 0 < per_second(sorted(moments)) <= 20 * len(moments)
