"""Card sizes are those of each pool's newest generation."""

from collections.abc import Iterator
from typing import Any
from weakref import ref

from hami_dra.migration import CardKind, Json, Policy
from hami_dra.migration.inventory import Sizes, cards_in, cards_of


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    """A pool that is being replaced shows old and new slices for a while."""
    slices = [
        Sizes(pool, generation, frozenset({CardKind("d", "m", size)}))
        for pool, generation, size in (("a", 1, 1), ("a", 2, 2), ("a", 2, 3), ("b", 1, 4))
    ]

    assert cards_of(slices).memory_mib == {2, 3, 4}
    assert not cards_of([]).memory_mib


def a_slice(pool: str, driver: str, generation: int, model: str) -> Json:
    device = {
        "name": "d",
        "allowMultipleAllocations": True,
        "attributes": {"type": {"string": "hami-gpu"}, "productName": {"string": model}},
        "capacity": {"memory": {"value": "1Gi"}},
    }
    numbered = {"name": pool, "generation": generation}
    return {"spec": {"driver": driver, "pool": numbered, "devices": [device]}}


def test_drivers_that_call_their_pools_alike_do_not_replace_each_other() -> None:
    """Each driver of a node calls its pool like the node."""
    policy = Policy.model_validate({"families": ["nvidia", {"preset": "hygon-dcu", "driver": "d"}]})
    nvidia = policy.families[0]
    slices = [
        a_slice("n", nvidia.driver, 7, "A"),
        a_slice("n", "d", 1, "B"),
        a_slice("n", "x", 1, "C"),
    ]

    found = cards_in(slices, policy)

    assert found.kinds == {CardKind(nvidia.driver, "A", 1024), CardKind("d", "B", 1024)}
    assert found.largest() == {nvidia.driver: 1024, "d": 1024}


class Watched(dict[str, Any]):
    """A slice whose end can be seen."""


def test_no_slice_is_kept_when_the_next_one_is_read() -> None:
    """A large cluster has thousands, and with those of other drivers gigabytes."""
    policy = Policy()
    seen: list[ref[Watched]] = []

    def slices() -> Iterator[Json]:
        for number in range(4):
            item = Watched(a_slice(f"p{number}", policy.families[0].driver, 1, "A"))
            seen.append(ref(item))
            yield item
            del item
            assert [each() for each in seen[:-1]] == [None] * number

    assert cards_in(slices(), policy).memory_mib == {1024}
    assert len(seen) == 4
