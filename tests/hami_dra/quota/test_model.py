"""No interleaving of replicas with stale caches admits more than a quota allows.

The model has what the real world has: claims that are created late or never, caches that follow by
and by, ledgers that are read before others write them, restarts. What is decided is decided by the
functions that the webhook runs.
"""

from dataclasses import dataclass, field
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hami_dra.migration import Family
from hami_dra.quota import Asked, Claimed, Known, Ledger, Quota, View, admit, settle
from hami_dra.quota.claim import Share
from hami_dra.quota.limit import Limit, Meaning

LIMIT = 10
MEMORY = "nvidia.com/gpumem"
HARD = (Limit(f"limits.{MEMORY}", Meaning(MEMORY, "MiB"), LIMIT),)
FAMILY = Family()

sizes = st.integers(3, 5)
replicas = st.integers(0, 1)
picks = st.integers(0, 4)


def known(uid: str, version: int, memory: int) -> Known:
    return Known(uid, f"claim-{uid}", version, Claimed(((Share(FAMILY, 1, memory, 0),),)))


@dataclass(slots=True)
class Replica:
    """What one replica knows."""

    followed: int = 0
    version: int = 0
    claims: dict[str, Known] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    ledger: tuple[int, Ledger] | None = None

    def mark(self) -> None:
        """Remember which claims of the ledger have been seen."""
        for uid in self.ledger[1].reserved if self.ledger else ():
            if uid in self.claims:
                self.shown.setdefault(uid, self.claims[uid].version)


@dataclass(slots=True)
class Decision:
    """A decision that is not written yet: on top of what, and which claims it admits."""

    on_top_of: int | None
    ledger: Ledger
    admitted: list[Asked]


class World(RuleBasedStateMachine):
    """An API server, replicas of the webhook, and people."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = count(1)
        self.uids = count(1)
        self.events: list[tuple[int, Known, bool]] = []
        self.claims: dict[str, Known] = {}
        self.stored: tuple[int, Ledger] | None = None
        self.replicas = [Replica() for _ in range(2)]
        self.decisions: list[Decision] = []
        self.in_flight: list[Asked] = []
        self.quotas = count(1)
        self.quota = Quota("0", "n", "q", HARD)

    @initialize(memory=sizes)
    def before_the_quota(self, memory: int) -> None:
        """A claim that was admitted when nobody needed a ledger."""
        self._create(str(next(self.uids)), memory)

    @rule(memory=sizes)
    def without_the_quota(self, memory: int) -> None:
        """The quota goes, a claim needs no ledger meanwhile, and another quota comes.

        What is being decided at that moment is decided by the old quota, as in the API server.
        """
        if not self.decisions and self._total() + memory <= LIMIT:
            self._create(str(next(self.uids)), memory)
            self.quota = Quota(str(next(self.quotas)), "n", "q", HARD)

    @rule(memory=sizes, which=replicas, late=st.booleans())
    def ask_write_and_create(self, memory: int, which: int, *, late: bool) -> None:
        """A claim is created without anything in between, as nearly always."""
        self.ask([memory], which, fresh=True, late=late)
        self.write(-1)
        self.proceed(-1, comes=True)

    @rule(
        memory=st.lists(sizes, min_size=1, max_size=3),
        which=replicas,
        fresh=st.booleans(),
        late=st.booleans(),
    )
    def ask(self, memory: list[int], which: int, *, fresh: bool, late: bool) -> None:
        """Claims are being created, and a replica thinks about it."""
        replica = self.replicas[which]
        if fresh:
            self.hear(which)
        found = replica.ledger
        ledger = found[1] if found else Ledger()
        overdue = self._ended(ledger) if late else set()
        view, is_new = self._view(replica), self.quota.uid not in replica.since
        if found is None or overdue or is_new or not view.suffices(ledger, replica.since):
            view = self._live(replica)
            replica.since = {self.quota.uid: view.newest}
        asked = [Asked(str(next(self.uids)), "", {MEMORY: each}) for each in memory]
        asked = [Asked(each.uid, f"claim-{each.uid}", each.amounts) for each in asked]
        settled = settle(ledger, view, overdue)
        after, answers = admit(settled, view, [self.quota], asked)
        fit = [each for each, refusal in zip(asked, answers, strict=True) if not refusal]
        if fit:
            self.decisions.append(Decision(found[0] if found else None, after, fit))

    @rule(pick=picks)
    def write(self, pick: int) -> None:
        """A decision is written, if nobody wrote in between; only then anybody is told."""
        if not self.decisions:
            return
        decision = self.decisions.pop(pick % len(self.decisions))
        if decision.on_top_of == (self.stored[0] if self.stored else None):
            text = decision.ledger.as_text()
            self.stored = (next(self.versions), Ledger.from_text(text))
            self.in_flight += decision.admitted

    @rule(pick=picks, comes=st.booleans())
    def proceed(self, pick: int, *, comes: bool) -> None:
        """An admitted claim is created at last, or the API server thinks better of it."""
        if not self.in_flight:
            return
        claim = self.in_flight.pop(pick % len(self.in_flight))
        if comes:
            self._create(claim.uid, claim.amounts[MEMORY] or 0)

    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        """A claim goes."""
        if self.claims:
            uid = sorted(self.claims)[pick % len(self.claims)]
            self._tell(self.claims.pop(uid), is_gone=True)

    @rule(pick=picks)
    def touch(self, pick: int) -> None:
        """A claim changes without taking anything else."""
        if self.claims:
            uid = sorted(self.claims)[pick % len(self.claims)]
            [[share]] = self.claims[uid].claimed.requests
            self._create(uid, share.memory_mib or 0)

    @rule(which=replicas, events=st.sampled_from([1, 99]))
    def follow(self, which: int, events: int) -> None:
        """A replica's watch goes on for a few events."""
        replica = self.replicas[which]
        for version, claim, is_gone in self.events[replica.followed :][:events]:
            replica.followed += 1
            replica.version = version
            if is_gone:
                replica.claims.pop(claim.uid, None)
            else:
                replica.claims[claim.uid] = claim
            replica.mark()

    @rule(which=replicas)
    def hear(self, which: int) -> None:
        """A replica learns what the ledger is now."""
        replica = self.replicas[which]
        replica.ledger = self.stored
        reserved = self.stored[1].reserved if self.stored else {}
        replica.shown = {uid: v for uid, v in replica.shown.items() if uid in reserved}
        replica.mark()

    @rule(which=replicas)
    def restart(self, which: int) -> None:
        """A replica begins anew with a list of all claims."""
        version = self.events[-1][0] if self.events else 0
        self.replicas[which] = Replica(len(self.events), version, dict(self.claims))

    @invariant()
    def never_more_than_the_limit(self) -> None:
        """What exists, and what is on its way, fits."""
        assert self._total() <= LIMIT

    def _total(self) -> int:
        taken = sum(self._memory(claim) for claim in self.claims.values())
        return taken + sum(claim.amounts[MEMORY] or 0 for claim in self.in_flight)

    def _ended(self, ledger: Ledger) -> set[str]:
        """Return the reserved claims that have come, or never will; time alone tells."""
        undecided = {claim.uid for claim in self.in_flight}
        return set(ledger.reserved) - undecided

    def _memory(self, claim: Known) -> int:
        return claim.claimed.amounts({})[MEMORY] or 0

    def _create(self, uid: str, memory: int) -> None:
        claim = known(uid, next(self.versions), memory)
        self.claims[uid] = claim
        self.events.append((claim.version, claim, False))

    def _tell(self, claim: Known, *, is_gone: bool) -> None:
        self.events.append((next(self.versions), claim, is_gone))

    def _view(self, replica: Replica) -> View:
        claims = replica.claims.values()
        return View.of(claims, {}, version=replica.version, gone=replica.shown)

    def _live(self, replica: Replica) -> View:
        return View.of(self.claims.values(), {}, version=0, gone=replica.shown, is_live=True)


World.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestQuota = World.TestCase
