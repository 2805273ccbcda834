"""The ledger of a namespace: claims that were admitted and that caches may not show yet.

Pure: it decides what a replica may conclude from a ledger and from what it has seen of the claims.
Whoever writes a ledger must name the version that was read, so of two replicas that read the same
one only the first gets through, and the other looks again (decision 0015).

What makes it right: a claim that was admitted is either in the ledger, or it was taken out by a
replica that had seen it. `through` is the newest version of any claim that was taken out like that,
so whoever has followed the claims up to `through` knows every claim that the ledger does not hold.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hami_dra.quota.amounts import Amounts, total
from hami_dra.quota.claim import Known, Sizes, holdings
from hami_dra.quota.limit import Quota
from hami_dra.quota.verdict import exceeded


class DamagedLedgerError(Exception):
    """What is stored is no ledger; somebody else wrote it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A claim that is being created.

    Attributes:
        uid: the claim's.
        name: the claim's.
        amounts: what it asks for.
    """

    uid: str
    name: str
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the replicas tell each other about one namespace.

    Attributes:
        through: a replica must know the claims up to this version before it may use the ledger.
        reserved: the claims that were admitted, by their UID.
    """

    through: int = 0
    reserved: Mapping[str, Asked] = field(default_factory=dict)

    def as_text(self) -> str:
        """Render it for storage; the same ledger gives the same text."""
        claims = {
            uid: {"name": one.name, "amounts": dict(one.amounts)}
            for uid, one in self.reserved.items()
        }
        return json.dumps(
            {"through": self.through, "claims": claims}, sort_keys=True, separators=(",", ":")
        )

    @staticmethod
    def from_text(text: str) -> "Ledger":
        """Read one back.

        Raises:
            DamagedLedgerError: if it was not written by `as_text`.
        """
        try:
            found = json.loads(text)
            reserved = {uid: _asked(uid, each) for uid, each in found["claims"].items()}
            through = found["through"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedLedgerError(f"found no ledger: {error!r:.120}") from error
        if type(through) is not int:
            raise DamagedLedgerError("found a through that is no number")
        return Ledger(through, reserved)


@dataclass(frozen=True, slots=True)
class View:
    """What a replica knows of the claims of a namespace.

    Attributes:
        version: it has followed all claims up to this version.
        used: what the claims take that exist.
        shown: versions of claims that it has seen, also of those that are gone again, by UID.
        newest: the newest version among the claims that exist.
        is_live: whether it was read for this very decision, after the ledger.
    """

    version: int
    used: Amounts
    shown: Mapping[str, int]
    newest: int = 0
    is_live: bool = False

    @staticmethod
    def of(
        claims: Collection[Known],
        sizes: Sizes,
        *,
        version: int,
        gone: Mapping[str, int] | None = None,
        is_live: bool = False,
    ) -> "View":
        """Build it from the claims that exist and those that were seen before."""
        shown = {**(gone or {}), **{one.uid: one.version for one in claims}}
        newest = max((one.version for one in claims), default=0)
        return View(version, holdings(claims, sizes), shown, newest, is_live)

    def suffices(self, ledger: Ledger, since: Mapping[str, int]) -> bool:
        """Tell whether every claim that the ledger does not hold is known here.

        Args:
            ledger: as it was read.
            since: up to which version the claims were read when each quota was first met.
        """
        return self.is_live or self.version >= max(ledger.through, *since.values(), 0)

    def used_with(self, ledger: Ledger) -> dict[str, int | None]:
        """Add what claims take that are admitted and not shown."""
        hidden = (one.amounts for uid, one in ledger.reserved.items() if uid not in self.shown)
        return total((self.used, *hidden))


def settle(ledger: Ledger, view: View, overdue: Collection[str] = ()) -> Ledger:
    """Take out what the view shows, and overdue reservations of claims that never came.

    Args:
        ledger: as it was read.
        view: suffices for it.
        overdue: claims whose creation must have ended long ago. They are taken out only if the view
            is live: then it is certain that they were not created.
    """
    shown = [view.shown[uid] for uid in ledger.reserved if uid in view.shown]
    never = set(overdue) - view.shown.keys() if view.is_live else set()
    left = {
        uid: one
        for uid, one in ledger.reserved.items()
        if uid not in view.shown and uid not in never
    }
    # After a restore of etcd versions begin anew, so what was read live replaces what was before.
    through = view.newest if view.is_live else max(ledger.through, *shown, 0)
    return Ledger(through, left)


def admit(
    ledger: Ledger, view: View, quotas: Iterable[Quota], claims: Sequence[Asked]
) -> tuple[Ledger, list[str]]:
    """Reserve for each claim that fits, in order; say of each other one why it does not.

    A claim that is known already is asked about a second time, and was admitted the first.

    Args:
        ledger: settled.
        view: suffices for it.
        quotas: all of the namespace.
        claims: what is being created.

    Returns:
        The ledger to write before anybody is answered, and for each claim an empty text or the
        reason of its refusal.
    """
    every = tuple(quotas)
    reserved = dict(ledger.reserved)
    used = view.used_with(ledger)
    answers: list[str] = []
    for claim in claims:
        known = claim.uid in reserved or claim.uid in view.shown
        refusal = "" if known else exceeded(every, used, claim.amounts)
        answers.append(refusal)
        if not refusal and not known:
            reserved[claim.uid] = claim
            used = total((used, claim.amounts))
    return Ledger(ledger.through, reserved), answers


def _asked(uid: str, found: Any) -> Asked:  # noqa: ANN401 - any JSON
    amounts = found["amounts"]
    if not all(each is None or type(each) is int for each in amounts.values()):
        raise TypeError("an amount is no number")
    return Asked(uid, str(found["name"]), amounts)
