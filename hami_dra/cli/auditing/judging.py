"""Judge the objects of a cluster: whether each converts, and what somebody should know. Pure.

Every verdict is that of the migration, with what the webhook would know: the cluster's version,
cards, LimitRanges and the namespaces that are left alone.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hami_dra.cli.auditing.amounts import asked_by, taken_by, times
from hami_dra.cli.auditing.copies import copies, is_over
from hami_dra.cli.auditing.findings import Finding, Outcome
from hami_dra.cli.conversion import misplaced
from hami_dra.cli.explanation import copied, words
from hami_dra.cli.patching import patched
from hami_dra.cli.report import Remark
from hami_dra.cli.workloads import Thing, Workload, named_in, things, unconverted, workloads
from hami_dra.migration import (
    Cards,
    Code,
    Json,
    Migration,
    NamespaceLimits,
    Policy,
    RejectedPod,
    migrate,
)
from hami_dra.migration.excerpt import OPT_OUT_LABEL
from hami_dra.migration.place import places
from hami_dra.migration.pod import NO_LIMITS, is_opted_out
from hami_dra.migration.record import ANNOTATION, read
from hami_dra.migration.registration import EXCLUDED_NAMESPACES
from hami_dra.migration.revert import revert
from hami_dra.quota.amounts import Amounts


@dataclass(frozen=True)
class Judge:
    """Judges objects one by one; nothing of them is kept but what is said.

    Attributes:
        policy: what a migration means, with the cluster's version.
        cards: what cards there are.
        limits: what the LimitRanges of each namespace insist on.
        left_alone: namespaces that opted out.
    """

    policy: Policy
    cards: Cards = field(default_factory=Cards)
    limits: Mapping[str, NamespaceLimits] = field(default_factory=dict)
    left_alone: Collection[str] = ()

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.policy.managed_names)

    @cached_property
    def _sizes(self) -> dict[str, int]:
        """The size of the largest card of each driver; one of which no more is known is any's."""
        found, bare = self.cards.largest(), max(self.cards.bare_mib, default=0)
        drivers = {family.driver for family in self.policy.families}
        largest = {driver: max(bare, found.get(driver, 0)) for driver in drivers}
        return {driver: size for driver, size in largest.items() if size}

    def findings(self, item: Json) -> Iterator[Finding]:
        """Yield what is said of an object; nothing for one that asks for no card in legacy words.

        Args:
            item: with its apiVersion and kind; never changed.
        """
        if is_over(item):
            return
        for thing in things(item):
            found = list(workloads(thing))
            for workload in found:
                yield from self._workload(workload)
            if not found and (why := unconverted(thing, self._names)):
                known = thing.kind is not None and bool(thing.kind.reason)
                outcome = Outcome.WEBHOOK if known else Outcome.PERSON
                yield Finding(thing.namespace, thing.title, outcome, copies=0, reason=why)

    def _workload(self, workload: Workload) -> Iterator[Finding]:
        if not _is_ours(workload.pod, self._names):
            return
        base = Finding(
            namespace=workload.thing.namespace,
            title=_title(workload),
            outcome=Outcome.REJECTED,
            copies=copies(workload),
        )
        live = _as_written(workload)
        try:
            pod = patched(copied(live), [((), revert(live))])
            base = replace(
                base,
                asked=tuple(_asked(pod, self.policy)),
                before=self._before(pod, base.copies),
            )
            made = self._migrated(pod, base.namespace)
            is_done = not self._migrated(live, base.namespace).patch
        except RejectedPod as rejected:
            yield replace(base, reason=str(rejected))
            return
        is_done = is_done and bool(read(live).containers)
        judged = self._judged(base, workload, pod, made, is_done=is_done)
        # A managed name somewhere else than in what a container asks for means nothing.
        if judged.asked or judged.told:
            yield judged

    def _judged(
        self, base: Finding, workload: Workload, pod: Json, made: Migration, *, is_done: bool
    ) -> Finding:
        after = patched(copied(pod), [((), made.patch)])
        taken = taken_by(after, made.templates, self.policy, self._sizes)
        notices = tuple(self._remarks(made, workload))
        reason = "" if is_done else self._left_alone(base.namespace, pod)
        outcome = Outcome.CONVERTED if is_done else Outcome.CONVERTS
        if not is_done and (reason or notices or not made.patch):
            outcome = Outcome.PERSON
        return replace(
            base,
            outcome=outcome,
            reason=reason,
            notices=notices,
            templates=() if reason else tuple(template.name for template in made.templates),
            after={} if reason else times(taken, base.copies),
        )

    def _migrated(self, pod: Json, namespace: str) -> Migration:
        limits = self.limits.get(namespace, NO_LIMITS)
        return migrate(pod, self.policy, self.cards, limits=limits)

    def _before(self, pod: Json, many: int) -> Amounts:
        try:
            return times(asked_by(pod, self.policy, self._sizes), many)
        except RejectedPod:
            return {}  # nobody can say how much; the migration says why

    def _remarks(self, made: Migration, workload: Workload) -> Iterator[Remark]:
        is_live = workload.thing.content.get("kind") == "Pod"
        for notice in made.notices:
            # On a running pod HAMi's scheduler put its marks itself; nobody copied them.
            if not (is_live and notice.code is Code.MARK_DROPPED):
                yield Remark(notice.message, notice.code.value, notice.path)
        if made.patch:
            yield from misplaced(workload, self.policy)

    def _left_alone(self, namespace: str, pod: Json) -> str:
        if namespace in self.left_alone or namespace in EXCLUDED_NAMESPACES:
            return f"the webhook leaves namespace {namespace} alone: its pods stay as they are"
        if is_opted_out(pod):
            return f"opted out by the label {OPT_OUT_LABEL}: its pods stay as they are"
        return ""


def _is_ours(pod: Json, names: Collection[str]) -> bool:
    """Tell whether a pod asks for something in legacy words, or did before its conversion."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return ANNOTATION in annotations or bool(named_in(pod, names))


def _as_written(workload: Workload) -> Json:
    """Return a pod as its author wrote it: the scheduler, and not he, chose the node."""
    if workload.thing.content.get("kind") != "Pod":
        return workload.pod
    spec = {k: v for k, v in (workload.pod.get("spec") or {}).items() if k != "nodeName"}
    return {**workload.pod, "spec": spec}


def _asked(pod: Json, policy: Policy) -> Iterator[str]:
    asking = [(each, " ".join(words(each.container, policy))) for each in places(pod)]
    found = [(each.name, text) for each, text in asking if text]
    for name, text in found:
        yield text if len(found) == 1 else f"{name}: {text}"


def _title(workload: Workload) -> str:
    """Name an object, and the place of its pod where there may be several."""
    thing: Thing = workload.thing
    several = thing.kind is not None and (len(thing.kind.pods) > 1 or "*" in thing.kind.pods[0])
    return f"{thing.title} ({workload.path})" if several else thing.title


def controller_of(item: Json) -> tuple[str, str, str]:
    """Return API group, kind and UID of the object that made this one; all empty for none."""
    for each in (item.get("metadata") or {}).get("ownerReferences") or ():
        if each.get("controller"):
            group = str(each.get("apiVersion") or "").rpartition("/")[0]
            return group, str(each.get("kind") or ""), str(each.get("uid") or "")
    return "", "", ""


def has_pods(item: Json) -> bool:
    """Tell whether an object says what its pods are."""
    return any(True for thing in things(item) for _ in workloads(thing))


def names_any(node: Any, names: Collection[str]) -> str:  # noqa: ANN401 - any JSON
    """Return a managed resource that is a key or a text somewhere in a value; empty for none."""
    if found := named_in(node, names):
        return found
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str) and each in names:
            return each
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return ""
