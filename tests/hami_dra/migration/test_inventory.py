"""Card sizes are those of each pool's newest generation."""

from hami_dra.migration import CardKind
from hami_dra.migration.inventory import Sizes, cards_of


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    """A pool that is being replaced shows old and new slices for a while."""
    slices = [
        Sizes(pool, generation, frozenset({CardKind("d", "m", size)}))
        for pool, generation, size in (("a", 1, 1), ("a", 2, 2), ("a", 2, 3), ("b", 1, 4))
    ]

    assert cards_of(slices).memory_mib == {2, 3, 4}
    assert not cards_of([]).memory_mib
