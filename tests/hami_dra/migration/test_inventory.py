"""Card sizes are those of each pool's newest generation."""

from hami_dra.migration.inventory import Sizes, cards_of


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    """A pool that is being replaced shows old and new slices for a while."""
    slices = [
        Sizes("a", 1, frozenset({1})),
        Sizes("a", 2, frozenset({2})),
        Sizes("a", 2, frozenset({3})),
        Sizes("b", 1, frozenset({4})),
    ]

    assert cards_of(slices).memory_mib == {2, 3, 4}
    assert not cards_of([]).memory_mib
