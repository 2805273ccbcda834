"""The pure core: what legacy GPU requests mean and how DRA says the same.

No I/O, no logging, no clock. `migrate` is the only place that knows what a migration means.

What is named here is loaded when it is first used: the node agent needs little of this package, and
the models of policies are a third of the memory of a process that does not read any.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hami_dra.migration.cards import CardKind, Cards
    from hami_dra.migration.claim import Template
    from hami_dra.migration.edit import NamespaceLimits
    from hami_dra.migration.family import Family
    from hami_dra.migration.json import Json
    from hami_dra.migration.making import Migration
    from hami_dra.migration.notice import Code, Notice, RejectedPod
    from hami_dra.migration.pod import migrate
    from hami_dra.migration.policy import Policy

__all__ = [
    "CardKind",
    "Cards",
    "Code",
    "Family",
    "Json",
    "Migration",
    "NamespaceLimits",
    "Notice",
    "Policy",
    "RejectedPod",
    "Template",
    "migrate",
]

_HOMES: Final = {
    "CardKind": "cards",
    "Cards": "cards",
    "Code": "notice",
    "Family": "family",
    "Json": "json",
    "Migration": "making",
    "NamespaceLimits": "edit",
    "Notice": "notice",
    "Policy": "policy",
    "RejectedPod": "notice",
    "Template": "claim",
    "migrate": "pod",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of whatever kind it is
    """Load what is named above."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
