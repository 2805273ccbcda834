"""Amounts: how much of each legacy resource something takes.

Cards by the resource that counts them, memory in MiB, compute in percent of a card; all three
summed over cards.
"""

from collections.abc import Iterable, Mapping

Amounts = Mapping[str, int | None]
"""An amount for each resource name. None: more than can be told, because a whole card is meant and
no card's size is known. Resources that are not there are not taken."""


def total(every: Iterable[Amounts]) -> dict[str, int | None]:
    """Add amounts up; what cannot be told makes the sum one that cannot."""
    summed: dict[str, int | None] = {}
    for amounts in every:
        for name, amount in amounts.items():
            before = summed.get(name, 0)
            summed[name] = None if before is None or amount is None else before + amount
    return summed


def largest(every: Iterable[Amounts]) -> dict[str, int | None]:
    """Take the largest of each amount; what cannot be told is larger than all."""
    most: dict[str, int | None] = {}
    for amounts in every:
        for name, amount in amounts.items():
            before = most.get(name, 0)
            most[name] = None if before is None or amount is None else max(before, amount)
    return most
