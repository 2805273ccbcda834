"""Migrate: the one function that knows what a migration means. Every shell applies its patch.

The pod is edited as a whole and the patch is the difference, so no JSON pointer is written by hand.
"""

import marshal
from functools import lru_cache
from typing import Final

from hami_dra.migration import record
from hami_dra.migration.cards import Cards
from hami_dra.migration.edit import NamespaceLimits
from hami_dra.migration.excerpt import MIRROR_ANNOTATION, OPT_OUT_LABEL, excerpt
from hami_dra.migration.json import Json, as_object
from hami_dra.migration.legacy import carries
from hami_dra.migration.making import Making, Migration, asked_again
from hami_dra.migration.notice import Code, Notice, RejectedPod
from hami_dra.migration.place import Place, places
from hami_dra.migration.policy import Policy
from hami_dra.migration.record import Record

OPT_OUT_VALUE: Final = "ignore"
"""The value of the opt-out label that counts."""

MOST_CONTAINERS: Final = 256
"""Containers of one pod that ask for cards. All of them run on one node, which has no room for so
many; and each may need a template of its own, which is created before anybody checks the pod."""

NO_LIMITS: Final = NamespaceLimits()
"""A namespace without LimitRanges on managed resources."""

# Pods of one workload have equal excerpts. Both bounds keep what is remembered below 10 MiB.
_REMEMBERED: Final = 512
_LONGEST: Final = 8 * 1024

# The last format of marshal without references: equal values give equal bytes.
_WITHOUT_REFERENCES: Final = 2


def migrate(
    pod: Json, policy: Policy, cards: Cards, *, limits: NamespaceLimits = NO_LIMITS
) -> Migration:
    """Work out how a pod with legacy GPU resources becomes a pod with claims.

    Args:
        pod: the pod, or a workload's pod template, as JSON; never changed.
        policy: what a migration means here.
        cards: what is known of the cluster's cards.
        limits: what the LimitRanges of the pod's namespace insist on (ruling 20).

    Returns:
        The patch, the templates that it refers to, and notices. Nothing for a pod that is not ours.

    Raises:
        RejectedPod: if legacy HAMi or the API server would refuse the pod, or it could never run.
    """
    part = excerpt(pod, policy)
    try:
        key = marshal.dumps(part, _WITHOUT_REFERENCES)
    except ValueError:  # a YAML library's own types, or lists that are too deep
        return migrate_part(part, policy, cards, limits)
    if len(key) > _LONGEST:
        return migrate_part(part, policy, cards, limits)
    return _remembered(key, policy, cards, limits)


@lru_cache(maxsize=_REMEMBERED)
def _remembered(key: bytes, policy: Policy, cards: Cards, limits: NamespaceLimits) -> Migration:
    """Migrate an excerpt of plain JSON. Bytes tell 1, 1.0 and true apart; a dict would not."""
    return migrate_part(marshal.loads(key), policy, cards, limits)  # noqa: S302 - our own bytes


def migrate_part(pod: Json, policy: Policy, cards: Cards, limits: NamespaceLimits) -> Migration:
    """Migrate a pod, or its excerpt, which comes to the same; see `migrate`."""
    every = places(pod)
    asking = [place for place in every if carries(place.container, policy.managed_names)]
    if not asking or is_opted_out(pod):
        return Migration()
    if _is_mirror(pod):
        return Migration(notices=_left_alone(asking))
    done = record.read(pod)
    work = [place for place in asking if _is_open(place, done, policy)]
    if not work:
        return Migration()
    if len(work) > MOST_CONTAINERS:
        raise RejectedPod(
            "spec",
            f"found {len(work)} containers that ask for cards, expected at most {MOST_CONTAINERS}",
            "spread the work over several pods",
        )
    notices = _check_pod(pod, every, policy) if _asks_for_cards(work, policy) else ()
    making = Making(pod, policy=policy, cards=cards, limits=limits, record=done, notices=notices)
    making.convert(work)
    return making.finish(every)


def is_opted_out(pod: Json) -> bool:
    """Tell whether the pod's author opted out, as with legacy (ruling 21)."""
    metadata = as_object(pod.get("metadata"), "metadata")
    return as_object(metadata.get("labels"), "metadata.labels").get(OPT_OUT_LABEL) == OPT_OUT_VALUE


def _is_mirror(pod: Json) -> bool:
    """Tell whether the pod is the API's copy of a static one (ruling 16)."""
    metadata = as_object(pod.get("metadata"), "metadata")
    return MIRROR_ANNOTATION in as_object(metadata.get("annotations"), "metadata.annotations")


def _left_alone(asking: list[Place]) -> tuple[Notice, ...]:
    message = "a static pod cannot have claims; run it from a DaemonSet"
    return tuple(Notice(Code.NOT_CONVERTED, f"{place.path}.resources", message) for place in asking)


def _is_open(place: Place, done: Record, policy: Policy) -> bool:
    """Tell whether a container asks for something that has not been dealt with."""
    converted = place.name in done.containers
    return not converted or bool(asked_again(place.container, policy.managed_names))


def _asks_for_cards(work: list[Place], policy: Policy) -> bool:
    return any(carries(place.container, policy.card_names) for place in work)


def _check_pod(pod: Json, every: list[Place], policy: Policy) -> tuple[Notice, ...]:
    """Refuse, or tell of, what makes a share of a card impossible or void (ruling 16)."""
    spec = as_object(pod.get("spec"), "spec")
    if spec.get("nodeName"):
        raise RejectedPod(
            "spec.nodeName",
            f"found {spec['nodeName']!r}, expected none: a pod that names its node passes the"
            " scheduler by, and only the scheduler allocates cards",
            "use nodeSelector or affinity on kubernetes.io/hostname",
        )
    notices = [notice for place in every for notice in _privileged(place)]
    if notices and policy.privileged == "reject":
        raise RejectedPod(
            notices[0].path, notices[0].message, "drop privileged, or ask for no card"
        )
    if spec.get("schedulingGroup"):
        message = "claims of a pod in a group wait unless DRAWorkloadResourceClaims is on"
        notices.append(Notice(Code.SCHEDULING_GROUP, "spec.schedulingGroup", message))
    return tuple(notices)


def _privileged(place: Place) -> tuple[Notice, ...]:
    path = f"{place.path}.securityContext"
    if not as_object(place.container.get("securityContext"), path).get("privileged"):
        return ()
    message = f"container {place.name} is privileged and sees every card of its node"
    return (Notice(Code.PRIVILEGED, f"{path}.privileged", message),)
