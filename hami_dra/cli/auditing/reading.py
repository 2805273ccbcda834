"""Audit a cluster: read it, keep what is said of its objects, and sum it up. Nothing is written."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import quote

from hami_dra.cli.auditing.bounds import (
    COUNTING,
    Counting,
    bound_of_counting,
    bound_of_limits,
    bound_of_quota,
)
from hami_dra.cli.auditing.findings import Audit, Bound, Finding, Summary, Unread, summaries
from hami_dra.cli.auditing.judging import Judge, controller_of, has_pods
from hami_dra.cli.auditing.reader import Reader
from hami_dra.cli.kinds import KINDS, Kind, kind_of
from hami_dra.kube.cache import key_of
from hami_dra.kube.limits import limits_of, merge
from hami_dra.kube.served import Served
from hami_dra.kube.session import Session
from hami_dra.migration import Cards, Json, Policy
from hami_dra.migration.excerpt import OPT_OUT_LABEL
from hami_dra.migration.inventory import CardReader
from hami_dra.migration.pod import OPT_OUT_VALUE
from hami_dra.migration.registration import NAME
from hami_dra.quota import read_quota
from hami_dra.quota.amounts import Amounts, total

_BUILT_IN: Final = (
    Served("batch/v1", "CronJob", "cronjobs"),
    Served("apps/v1", "Deployment", "deployments"),
    Served("apps/v1", "StatefulSet", "statefulsets"),
    Served("apps/v1", "DaemonSet", "daemonsets"),
    Served("v1", "ReplicationController", "replicationcontrollers"),
    Served("v1", "PodTemplate", "podtemplates"),
    Served("batch/v1", "Job", "jobs"),
    Served("apps/v1", "ReplicaSet", "replicasets"),
    Served("v1", "Pod", "pods"),
)
"""Owners before what they own, which is then passed over."""

_SLICES: Final = Served("resource.k8s.io/v1", "ResourceSlice", "resourceslices", False)  # noqa: FBT003 - a row of a table
_LIMITS: Final = Served("v1", "LimitRange", "limitranges")
_QUOTAS: Final = Served("v1", "ResourceQuota", "resourcequotas")
_NAMESPACES: Final = Served("v1", "Namespace", "namespaces", False)  # noqa: FBT003 - a row of a table
_OPTED_OUT: Final = {"labelSelector": f"{OPT_OUT_LABEL}={OPT_OUT_VALUE}"}
_REGISTRATIONS: Final = "validatingwebhookconfigurations"
_ADMISSION: Final = f"/apis/admissionregistration.k8s.io/v1/{_REGISTRATIONS}"


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be audited.

    Attributes:
        policy: what a migration means.
        namespace: the only one to look at; empty for all.
        cards: what cards there are; None to ask the cluster.
        command: the command line that asks for it again.
        date: as it is printed.
    """

    policy: Policy
    namespace: str
    cards: Cards | None
    command: str
    date: str


async def audit(session: Session, request: Request, progress: Callable[[str, int], None]) -> Audit:
    """Read and judge.

    Args:
        session: the API server.
        request: what is to be audited.
        progress: told what is being read, and how many objects of it were.

    Raises:
        ApiError: if the API server does not say its version.
        UnreachableError: if it does not answer.
    """
    server = await session.get("/version")
    major, minor = await session.version()
    policy = request.policy.model_copy(update={"kubernetes": f"{major}.{minor}"})
    reader = Reader(session, request.namespace, progress)
    auditor = _Auditor(reader, policy)
    await auditor.read(request.cards)
    findings = tuple(sorted(auditor.findings, key=lambda each: (each.namespace, each.title)))
    return Audit(
        server=str(server.get("gitVersion") or f"v{major}.{minor}"),
        scope=request.namespace,
        command=request.command,
        date=request.date,
        everything=Summary.of("", findings, policy),
        namespaces=summaries(findings, policy),
        findings=findings,
        bounds=tuple(sorted(auditor.bounds, key=lambda each: (each.namespace, each.title))),
        unread=tuple(reader.unread),
    )


@dataclass(slots=True)
class _Auditor:
    """Collects what is said.

    Attributes:
        reader: reads the cluster.
        policy: what a migration means there.
        findings: of workloads.
        bounds: of what limits or counts.
    """

    reader: Reader
    policy: Policy
    findings: list[Finding] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    _judged: set[tuple[str, ...]] = field(default_factory=set)
    _without_pods: set[str] = field(default_factory=set)
    """Owners that leave it to others what their pods are, such as a Rollout by its workloadRef."""

    async def read(self, cards: Cards | None) -> None:
        """Read everything."""
        if cards is None:
            cards = await self._cards()
        limit_ranges = await self.reader.every(_LIMITS)
        names = frozenset(self.policy.managed_names)
        judge = Judge(
            self.policy,
            cards,
            merge((key_of(item), limits_of(item, names)) for item in limit_ranges),
            await self._left_alone(),
        )
        groups = {each.group for each in (*KINDS, *COUNTING)} - {"", "apps", "batch"}
        served = await self.reader.kinds(groups)
        for each in (*(each for each in served if _kind_of(each)), *_BUILT_IN):
            await self._workloads(each, judge)
        self._take(bound_of_limits(item, self.policy) for item in limit_ranges)
        await self._quotas()
        await self._counting(served)

    async def _cards(self) -> Cards:
        """Read the cards; a large cluster has thousands of slices, so none is kept."""
        found = CardReader(self.policy)
        await self.reader.each(_SLICES, found.take)
        return found.cards

    async def _left_alone(self) -> set[str]:
        """Return the namespaces that opted out."""
        if name := self.reader.namespace:
            path = f"{_NAMESPACES.path()}/{quote(name, safe='')}"
            found = await self.reader.found("namespaces", path)
            if found is None:
                self.reader.unread.append(Unread(f"namespace {name}", "there is no such namespace"))
            items = [found] if isinstance(found, dict) else []
        else:
            items = await self.reader.every(_NAMESPACES, query=_OPTED_OUT)
        return {item["metadata"]["name"] for item in items if _opted_out(item)}

    async def _workloads(self, served: Served, judge: Judge) -> None:
        """Judge the objects of a kind, but those that belong to one which is judged itself."""

        def take(item: Json) -> None:
            *kind, uid = controller_of(item)
            if tuple(kind) not in self._judged or uid in self._without_pods:
                self.findings.extend(judge.findings(item))
            if (own := item["metadata"].get("uid")) and not has_pods(item):
                self._without_pods.add(own)

        is_read = await self.reader.each(served, take)
        kind = _kind_of(served)
        if is_read and kind is not None and not kind.reason:
            self._judged.add((served.group, served.kind))

    async def _quotas(self) -> None:
        """Judge the quotas; whether they are enforced is asked where there is one of ours."""
        quotas = await self.reader.every(_QUOTAS)
        ours = [item for item in quotas if read_quota(item, self.policy) is not None]
        if not ours:
            return
        held = await self.reader.found(_REGISTRATIONS, f"{_ADMISSION}/{NAME}")
        after: dict[str, list[Amounts]] = {}
        for each in self.findings:
            after.setdefault(each.namespace, []).append(each.after)
        for item in ours:
            wanted = total(after.get(item["metadata"]["namespace"], ()))
            bound = bound_of_quota(item, self.policy, validating=held, wanted=wanted)
            self._take([bound])

    async def _counting(self, served: list[Served]) -> None:
        """Judge what batch schedulers count; what belongs to no namespace only for all of them."""
        known = {(each.group, each.kind): each for each in COUNTING}
        for each in served:
            counting = known.get((each.group, each.kind))
            if counting is None or (self.reader.namespace and not each.is_namespaced):
                continue
            await self.reader.each(each, partial(self._count, counting))

    def _count(self, counting: Counting, item: Json) -> None:
        self._take([bound_of_counting(item, counting, self.policy)])

    def _take(self, bounds: Iterable[Bound | None]) -> None:
        self.bounds += [bound for bound in bounds if bound is not None]


def _kind_of(served: Served) -> Kind | None:
    return kind_of({"apiVersion": served.api_version, "kind": served.kind})


def _opted_out(namespace: Json) -> bool:
    labels = namespace["metadata"].get("labels") or {}
    return bool(labels.get(OPT_OUT_LABEL) == OPT_OUT_VALUE)
