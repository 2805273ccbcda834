"""The pure core: what legacy GPU requests mean and how DRA says the same.

No I/O, no logging, no clock. `migrate` is the only place that knows what a migration means.
"""

from hami_dra.migration.claim import Cards, Template
from hami_dra.migration.json import Json
from hami_dra.migration.notice import Code, Notice, RejectedPod
from hami_dra.migration.pod import Migration, migrate
from hami_dra.migration.policy import Family, Policy

__all__ = [
    "Cards",
    "Code",
    "Family",
    "Json",
    "Migration",
    "Notice",
    "Policy",
    "RejectedPod",
    "Template",
    "migrate",
]
