"""The pure core: what legacy GPU requests mean and how DRA says the same.

No I/O, no logging, no clock. `migrate` is the only place that knows what a migration means.
"""

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
