"""Equality as JSON has it, where 1 is not true and 1.0 is written otherwise than 1."""

from typing import Any


def same(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON
    """Tell whether two values are the same JSON; the order of keys does not count."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            same(member, other[key]) for key, member in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def steps(before: list[Any], after: list[Any]) -> list[tuple[int | None, int | None]]:
    """Pair the members of a list with those that it should have.

    Returns:
        Pairs of positions before and after, in order: both for one that stays or changes, only
        `before` for one that goes, only `after` for one that comes.
    """
    found: list[tuple[int | None, int | None]] = []
    old = new = 0
    while old < len(before) and new < len(after):
        must_shrink = len(before) - old > len(after) - new
        if must_shrink and not same(before[old], after[new]):
            found.append((old, None))
        else:
            found.append((old, new))
            new += 1
        old += 1
    found += [(index, None) for index in range(old, len(before))]
    found += [(None, index) for index in range(new, len(after))]
    return found
