"""Delays grow, stay below their limit and differ between replicas."""

from hypothesis import given
from hypothesis import strategies as st

from hami_dra.kube.backoff import Backoff


@given(chance=st.floats(0, 1), failures=st.integers(1, 2000))
def test_a_delay_is_never_longer_than_the_limit_nor_zero(chance: float, failures: int) -> None:
    backoff = Backoff(initial_s=0.1, limit_s=5, chance=lambda: chance)

    delays = [backoff.next_s() for _ in range(failures)]

    assert all(0.05 <= delay <= 5 for delay in delays)
    assert delays == sorted(delays)


def test_a_success_starts_over() -> None:
    backoff = Backoff(initial_s=1, limit_s=30, chance=lambda: 0)

    assert [backoff.next_s() for _ in range(6)] == [1, 2, 4, 8, 16, 30]
    backoff.reset()
    assert backoff.next_s() == 1
