"""Decide which ResourceClaimTemplates of ours may go (ruling 28, decision 0017). Pure.

A template may go when it was made by us, nothing refers to it, and that was so for long enough.
How long is recorded on the template itself, by whoever first sees it unused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from hami_dra.migration.claim import MANAGED_BY
from hami_dra.migration.json import Json

UNUSED_SINCE: Final = "hami-dra.io/unused-since"
"""Annotation with the moment at which a template was first seen unused, in RFC 3339."""

FIELD_MANAGER: Final = "hami-dra"
"""How the API server calls us in `managedFields`."""

DEFAULT_TTL: Final = timedelta(days=7)
"""How long a template stays unused before it goes."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
# Clocks of replicas differ a little; a mark from further in the future was not made by one.
_SKEW: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of object that may refer to templates.

    Attributes:
        kind: as messages call it.
        root: the API group's path.
        resource: the collection.
        pod: the path of its pod template; empty for the pod itself.
    """

    kind: str
    root: str
    resource: str
    pod: tuple[str, ...]

    def path(self, namespace: str) -> str:
        """Return the collection of a namespace."""
        return f"{self.root}/namespaces/{namespace}/{self.resource}"


_TEMPLATE: Final = ("spec", "template")

WORKLOADS: Final = (
    Source("Pod", "/api/v1", "pods", ()),
    Source("ReplicaSet", "/apis/apps/v1", "replicasets", _TEMPLATE),
    Source("Deployment", "/apis/apps/v1", "deployments", _TEMPLATE),
    Source("StatefulSet", "/apis/apps/v1", "statefulsets", _TEMPLATE),
    Source("DaemonSet", "/apis/apps/v1", "daemonsets", _TEMPLATE),
    Source("Job", "/apis/batch/v1", "jobs", _TEMPLATE),
    Source("CronJob", "/apis/batch/v1", "cronjobs", ("spec", "jobTemplate", *_TEMPLATE)),
    Source("ReplicationController", "/api/v1", "replicationcontrollers", _TEMPLATE),
    Source("PodTemplate", "/api/v1", "podtemplates", ("template",)),
)
"""What carries pods, the likeliest users first: the search ends when all templates are in use."""

CLAIMS: Final = Source("ResourceClaim", "/apis/resource.k8s.io/v1", "resourceclaims", ())
"""Claims do not name their template, but somebody's may be tied to one."""


class Action(StrEnum):
    """What to do with a template."""

    KEEP = "keep"
    MARK = "mark"
    """Record that it is unused from now on."""
    UNMARK = "unmark"
    """Forget that it was unused."""
    SWEEP = "sweep"
    """Delete it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of a template.

    Attributes:
        action: what to do.
        reason: why, for a person.
        since: since when it is unused, as far as anybody knows; None while it is in use.
    """

    action: Action
    reason: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """When an unused template may go.

    Attributes:
        now: the present.
        ttl: how long it must have been unused.
        creation_counts: whether a template without a record counts as unused since its creation.
            Only for a person who sees the list first: it may have been in use an hour ago.
    """

    now: datetime
    ttl: timedelta = DEFAULT_TTL
    creation_counts: bool = False


def judge(template: Json, user: str | None, rule: Rule) -> Judgement:
    """Decide what becomes of a template; the object's metadata suffices.

    Args:
        template: as the API server returns it.
        user: what refers to it, such as `Pod/trainer`; None when nothing does.
        rule: when it may go.
    """
    if reason := foreign(template):
        return Judgement(Action.KEEP, reason)
    marked = _annotations(template).get(UNUSED_SINCE)
    if user is not None:
        action = Action.KEEP if marked is None else Action.UNMARK
        return Judgement(action, f"used by {user}")
    since = recorded(template, rule.now)
    if since is None and rule.creation_counts:
        since = _moment(template["metadata"].get("creationTimestamp"))
    if since is None:
        return Judgement(Action.MARK, "unused, and nobody recorded since when", rule.now)
    if rule.now - since < rule.ttl:
        return Judgement(Action.KEEP, f"unused for less than {spell(rule.ttl, whole=True)}", since)
    return Judgement(Action.SWEEP, f"unused for {spell(rule.now - since)}", since)


def foreign(template: Json) -> str:
    """Say why a template is somebody else's affair; empty when it is ours alone.

    Manifests that were converted in Git carry our label too; what we created and nobody touched is
    told from them by its field managers.
    """
    metadata = template["metadata"]
    labels = metadata.get("labels") or {}
    if any(labels.get(name) != value for name, value in MANAGED_BY.items()):
        return "it does not carry our label"
    if _LAST_APPLIED in _annotations(template):
        return "somebody applied it with kubectl"
    for owner in metadata.get("ownerReferences") or ():
        return f"{owner['kind']}/{owner['name']} owns it"
    for finalizer in metadata.get("finalizers") or ():
        return f"the finalizer {finalizer} protects it"
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    return _foreign_manager(metadata.get("managedFields") or ())


def recorded(template: Json, now: datetime) -> datetime | None:
    """Return since when a template is recorded as unused; None where that says nothing."""
    moment = _moment(_annotations(template).get(UNUSED_SINCE))
    return None if moment is None or moment > now + _SKEW else moment


def mark(template: Json, now: datetime | None) -> Json:
    """Build the patch that records since when a template is unused; None forgets it.

    It applies only to the very state that was judged, so that no replica undoes another's work.
    """
    value = None if now is None else now.astimezone(UTC).strftime(_FORMAT)
    version = template["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version, "annotations": {UNUSED_SINCE: value}}}


def preconditions(template: Json) -> Json:
    """Build DeleteOptions that spare whatever changed since it was judged."""
    metadata = template["metadata"]
    wanted = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": wanted}


def restored(template: Json) -> Json:
    """Build the object that puts a deleted template back, unmarked."""
    metadata = template["metadata"]
    annotations = {k: v for k, v in _annotations(template).items() if k != UNUSED_SINCE}
    kept: Json = {key: metadata[key] for key in ("name", "namespace", "labels") if key in metadata}
    if annotations:
        kept["annotations"] = annotations
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": kept,
        "spec": template["spec"],
    }


def named_by(item: Json, source: Source) -> Iterator[str]:
    """Yield the names of the templates that a workload refers to."""
    node: Any = item
    for step in (*source.pod, "spec"):
        node = (node or {}).get(step)
    for entry in (node or {}).get("resourceClaims") or ():
        if name := entry.get("resourceClaimTemplateName"):
            yield name


def tied_to(claim: Json) -> Iterator[str]:
    """Yield what may be names of templates that a claim is tied to, by owner or by annotation."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "ResourceClaimTemplate":
            yield owner["name"]
    yield from _annotations(claim).values()


def spell(span: timedelta, *, whole: bool = False) -> str:
    """Write a time span in its largest unit, such as `8 days`.

    Args:
        span: what is written.
        whole: whether nothing of it may be left over, as with a limit that was set.
    """
    seconds = max(0, int(span.total_seconds()))
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        amount, rest = divmod(seconds, length)
        if amount and not (whole and rest):
            return f"{amount} {unit}{'' if amount == 1 else 's'}"
    return f"{seconds} second{'' if seconds == 1 else 's'}"


def _foreign_manager(managers: Any) -> str:  # noqa: ANN401 - any JSON
    names = [entry.get("manager") or "somebody without a name" for entry in managers]
    for name in names:
        if name != FIELD_MANAGER:
            return f"{name} wrote it"
    return "" if names else "nothing tells who wrote it"


def _annotations(item: Json) -> dict[str, str]:
    return item["metadata"].get("annotations") or {}


def _moment(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), _FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
