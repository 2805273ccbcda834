"""Names of claim entries in a pod: DNS labels that are unique among the pod's own."""

import hashlib
from collections.abc import Collection
from itertools import count
from typing import Final

_LONGEST: Final = 63  # a DNS label
_DIGITS: Final = 6


def unique_name(wanted: str, *, taken: Collection[object]) -> str:
    """Return `wanted`, or a shortened form with a hash where it is too long or taken."""
    if len(wanted) <= _LONGEST and wanted not in taken:
        return wanted
    candidates = (_shortened(wanted, attempt) for attempt in count())
    return next(name for name in candidates if name not in taken)


def _shortened(wanted: str, attempt: int) -> str:
    digest = hashlib.sha256(f"{attempt}/{wanted}".encode()).hexdigest()[:_DIGITS]
    return f"{wanted[: _LONGEST - _DIGITS - 1].rstrip('-')}-{digest}"
