"""Judge what limits or counts resources that converted pods no longer carry. Pure.

LimitRanges and quotas are judged as `hami-dra preflight` judges them, each for itself; what batch
schedulers count was read in Kueue 0.19 and Volcano 1.16.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hami_dra.cli.auditing.findings import Bound
from hami_dra.cli.auditing.judging import names_any
from hami_dra.migration import Json, Policy
from hami_dra.migration.names import DRIVER
from hami_dra.preflight.evidence import Evidence, Hidden, HiddenError
from hami_dra.preflight.fact import Status, Verdict
from hami_dra.preflight.tenants import limit_ranges, quotas_enforced
from hami_dra.quota import exceeded, read_quota
from hami_dra.quota.amounts import Amounts

# Whether a LimitRange or a quota means what it meant depends on no clock.
_ANY_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Counting:
    """A kind of a batch scheduler that counts resources.

    Attributes:
        group: of its API.
        kind: as objects name it.
        becomes: what becomes of what it counts.
        fix: what to do; empty for nothing.
    """

    group: str
    kind: str
    becomes: str
    fix: str = ""


_KUEUE_COUNTS: Final = (
    "Kueue counts what the template of a workload asks for: it goes on counting workloads that only"
    " the webhook converts, and no longer those whose manifests are converted"
)
_KUEUE_FIX: Final = (
    "before you convert their manifests, map the DeviceClass in deviceClassMappings of Kueue's"
    " configuration"
)
_GROUP_WAITS: Final = (
    "its minimum comes from a template that is not converted, and no node offers these resources"
    " any more, so the group would wait"
)
_GROUP_FIX: Final = "convert the manifest of its job: hami-dra convert"

COUNTING: Final = (
    Counting("kueue.x-k8s.io", "ClusterQueue", _KUEUE_COUNTS, _KUEUE_FIX),
    Counting("kueue.x-k8s.io", "Cohort", _KUEUE_COUNTS, _KUEUE_FIX),
    Counting("kueue.x-k8s.io", "ResourceFlavor", "its labels and tolerations stay as they are"),
    Counting(
        "scheduling.volcano.sh",
        "Queue",
        "Volcano counts what pods ask for, and converted pods no longer ask for these resources",
        "name the DeviceClass in their place (Volcano 1.15 and newer), such as"
        f" memory.deviceclass/{DRIVER}",
    ),
    Counting("scheduling.volcano.sh", "PodGroup", _GROUP_WAITS, _GROUP_FIX),
    Counting("scheduling.x-k8s.io", "PodGroup", _GROUP_WAITS, _GROUP_FIX),
)
"""All that are known."""


def bound_of_limits(item: Json, policy: Policy) -> Bound | None:
    """Judge a LimitRange; None for one that names no managed resource."""
    names = frozenset(policy.converted_names)
    said = [
        f"{section} {name}: {amount}"
        for limit in (item.get("spec") or {}).get("limits") or ()
        for section, amounts in limit.items()
        if isinstance(amounts, dict)
        for name, amount in amounts.items()
        if name in names
    ]
    if not said:
        return None
    verdict = limit_ranges(Evidence(now=_ANY_TIME, limit_ranges=[item]), policy)
    is_kept = verdict.status is Status.PASS
    becomes = "nothing changes" if is_kept else verdict.found
    return _bound(item, "LimitRange", said, becomes, verdict.fix)


def bound_of_quota(
    item: Json, policy: Policy, *, validating: Json | Hidden | None, wanted: Amounts
) -> Bound | None:
    """Judge a ResourceQuota; None for one that names no managed resource.

    Args:
        item: the quota.
        policy: says which keys are converted.
        validating: the registration by which claims are held to quotas; None when there is none.
        wanted: what the claims of all workloads of its namespace would take.
    """
    quota = read_quota(item, policy)
    if quota is None:
        return None
    used = (item.get("status") or {}).get("used") or {}
    verdict = _enforced(item, policy, validating)
    is_ours = verdict.status is Status.PASS
    # What the API server counts are the pods that were not converted, not what claims take.
    said = [
        f"{limit.key}: {limit.hard} {limit.meaning.unit}"
        + ("" if is_ours else f" (used: {used.get(limit.key, 0)})")
        for limit in quota.limits
    ]
    told = [verdict.found] if quota.limits else []
    told += [str(notice) for notice in quota.notices]
    if is_ours and quota.limits:
        told.append(f"what is used: hami-dra quota -n {quota.namespace}")
    if over := exceeded([quota], {}, wanted):
        told.append(f"all workloads at once do not fit: {over}")
    return _bound(item, "ResourceQuota", [*said, *quota.not_held], "; ".join(told), verdict.fix)


def bound_of_counting(item: Json, counting: Counting, policy: Policy) -> Bound | None:
    """Judge an object of a batch scheduler; None for one that names no managed resource."""
    name = names_any(item.get("spec"), frozenset(policy.converted_names))
    if not name:
        return None
    return _bound(item, counting.kind, [f"names {name}"], counting.becomes, counting.fix)


def _enforced(item: Json, policy: Policy, validating: Json | Hidden | None) -> Verdict:
    evidence = Evidence(now=_ANY_TIME, quotas=[item], validating=validating)
    try:
        return quotas_enforced(evidence, policy)
    except HiddenError as hidden:
        return Verdict(Status.UNKNOWN, f"whether it is enforced could not be read: {hidden}")


def _bound(item: Json, kind: str, said: list[str], becomes: str, fix: str) -> Bound:
    metadata = item["metadata"]
    return Bound(
        namespace=metadata.get("namespace") or "",
        title=f"{kind}/{metadata['name']}",
        says="; ".join(said),
        becomes=becomes,
        fix=fix,
    )
