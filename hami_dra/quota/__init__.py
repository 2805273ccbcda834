"""The pure core of quotas: what claims take, what a namespace may take, and who still fits.

No I/O, no logging, no clock. The reader of a claim here is the only one: what is stored, what is
asked for and what a migration is about to ask for are counted by the same function.
"""

from hami_dra.quota.claim import Claimed, Known, Sizes, holdings, read_asked, read_claim
from hami_dra.quota.ledger import Asked, Ledger, View, admit, settle
from hami_dra.quota.limit import Limit, Quota, read_quota
from hami_dra.quota.verdict import exceeded

__all__ = [
    "Asked",
    "Claimed",
    "Known",
    "Ledger",
    "Limit",
    "Quota",
    "Sizes",
    "View",
    "admit",
    "exceeded",
    "holdings",
    "read_asked",
    "read_claim",
    "read_quota",
    "settle",
]
