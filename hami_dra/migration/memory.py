"""Read: how much memory of each card a container means (rulings 3, 6 and 7)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hami_dra.migration.family import Family
from hami_dra.migration.notice import Code, Notice, RejectedPod
from hami_dra.migration.quantity import Quantity

IMPLAUSIBLE_MIB: Final = 1_000_000
"""From here on an amount cannot be MiB of one card (the largest had under 300,000 in 2026), so the
author wrote bytes. Legacy let such pods wait for ever (decision 0006)."""

_WHOLE: Final = 100
_BYTES_IN_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of each card.

    Attributes:
        mib: an absolute amount; None for the whole card, or a percentage.
        percentage: 1 to 99; None otherwise.
        is_step: whether it is one of the few shares that the hardware can make.
        notices: what had to be changed.
    """

    mib: int | None = None
    percentage: int | None = None
    is_step: bool = False
    notices: tuple[Notice, ...] = ()


def memory_of(path: str, limits: Mapping[str, Quantity], family: Family) -> Memory:
    """Return what checked limits mean; an absolute amount wins over a percentage.

    Args:
        path: the limits, for messages.
        limits: whole amounts by resource name.
        family: the vocabulary.

    Raises:
        RejectedPod: for bytes instead of MiB, and for more than a card has.
    """
    names = family.resources
    mib = _absolute(path, limits, family)
    percentage = limits[names.percentage].integer if names.percentage in limits else 0
    if not mib and not percentage:
        mib = family.default_memory
    if mib:
        return _stepped(f"{path}.{names.memory}", mib, family)
    return Memory(percentage=percentage if 0 < percentage < _WHOLE else None)


def _absolute(path: str, limits: Mapping[str, Quantity], family: Family) -> int:
    """Return MiB per card, 0 when not given; refuse amounts that were meant as bytes (ruling 6)."""
    name = family.resources.memory
    if name not in limits:
        return 0
    written, factor = limits[name].integer, family.memory_factor or 1
    mib = written * factor
    if mib < IMPLAUSIBLE_MIB:
        return mib
    meant = max(1, round(written / _BYTES_IN_MIB) // factor)
    raise RejectedPod(
        f"{path}.{name}",
        f"found {limits[name]}, which means {mib} MiB on each card, more than any card has:"
        " the unit is MiB, not bytes",
        f"write {name}: {meant}",
    )


def _stepped(path: str, mib: int, family: Family) -> Memory:
    """Return the share that the hardware can make, where it can make only some."""
    if family.memory_capacity and mib > family.memory_capacity:
        reason = f"found {mib} MiB, expected at most {family.memory_capacity}, all that a card has"
        raise RejectedPod(path, reason)
    if not family.memory_steps:
        return Memory(mib=mib)
    step = next((step for step in family.memory_steps if step >= mib), None)
    if step == mib:
        return Memory(mib=mib, is_step=True)
    used = "the whole card" if step is None else f"{step} MiB"
    notice = Notice(Code.MEMORY_ROUNDED, path, f"found {mib} MiB, used {used}, as HAMi does")
    return Memory(mib=step, is_step=step is not None, notices=(notice,))
