"""Migrate: the one function that knows what a migration means. Every shell applies its patch.

The pod is edited as a whole and the patch is the difference, so no JSON pointer is written by hand.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import jsonpatch

from hami_dra.migration import record
from hami_dra.migration.claim import Cards, Template, build_template
from hami_dra.migration.edit import PodEdit
from hami_dra.migration.json import Json, as_object
from hami_dra.migration.legacy import Request, card_names, carries, managed_names, read_request
from hami_dra.migration.notice import Code, Notice, RejectedPod
from hami_dra.migration.place import Place, places
from hami_dra.migration.policy import Family, Policy
from hami_dra.migration.quantity import QuantityError, parse
from hami_dra.migration.record import Converted
from hami_dra.migration.selector import selectors

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Marks the API's copy of a static pod, which nothing may change."""

OPT_OUT_LABEL: Final = "hami.io/webhook"
"""Label of pods and namespaces that legacy, and we, leave alone when it says `ignore`."""

OPT_OUT_VALUE: Final = "ignore"
"""The value of the opt-out label that counts."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What has to happen to a pod so that it runs on DRA.

    Attributes:
        patch: RFC 6902 operations on the pod; empty when nothing changes.
        templates: the templates that must exist in the pod's namespace before the pod does.
        notices: what a person may want to know.
    """

    patch: list[Json] = field(default_factory=list)
    templates: tuple[Template, ...] = ()
    notices: tuple[Notice, ...] = ()


def migrate(
    pod: Json, policy: Policy, cards: Cards, *, held: frozenset[str] = frozenset()
) -> Migration:
    """Work out how a pod with legacy GPU resources becomes a pod with claims.

    Args:
        pod: the pod, or a workload's pod template, as JSON; never changed.
        policy: what a migration means here.
        cards: what is known of the cluster's cards.
        held: managed resources for which a LimitRange of the namespace sets a maximum. The API
            server insists that they stand in the pod, so they are written as zero (ruling 20).

    Returns:
        The patch, the templates that it refers to, and notices. Nothing for a pod that is not ours.

    Raises:
        RejectedPod: if legacy HAMi or the API server would refuse the pod, or it could never run.
    """
    names = [name for family in policy.families for name in managed_names(family)]
    if _is_opted_out(pod):
        return Migration()
    if _is_mirror(pod):
        return Migration(notices=_left_alone(pod, names))
    converted = record.read(pod)
    work = [place for place in places(pod) if _has_work(place, converted, names)]
    if not work:
        return Migration()
    asking = [name for family in policy.families for name in card_names(family)]
    also: tuple[Notice, ...] = ()
    if any(carries(place.container, asking) for place in work):
        _check_reaches_scheduler(pod)
        also = _privileged(pod, policy)
    making = _Making(pod, policy=policy, cards=cards, held=held, converted=converted)
    for place in work:
        making.visit(place)
    return making.finish(also=also)


def _is_opted_out(pod: Json) -> bool:
    """Tell whether the pod's author opted out, as with legacy (ruling 21)."""
    metadata = as_object(pod.get("metadata"), "metadata")
    return as_object(metadata.get("labels"), "metadata.labels").get(OPT_OUT_LABEL) == OPT_OUT_VALUE


def _is_mirror(pod: Json) -> bool:
    """Tell whether the pod is the API's copy of a static one (ruling 16)."""
    metadata = as_object(pod.get("metadata"), "metadata")
    return MIRROR_ANNOTATION in as_object(metadata.get("annotations"), "metadata.annotations")


def _left_alone(pod: Json, names: Collection[str]) -> tuple[Notice, ...]:
    message = "a static pod cannot have claims; run it from a DaemonSet"
    return tuple(
        Notice(Code.NOT_CONVERTED, f"{place.path}.resources", message)
        for place in places(pod)
        if carries(place.container, names)
    )


def _has_work(place: Place, converted: Mapping[str, Converted], names: Collection[str]) -> bool:
    """Tell whether a container names something that has not been dealt with."""
    if not carries(place.container, names):
        return False
    return place.name not in converted or bool(_asked_again(place.container, names))


def _asked_again(container: Json, names: Collection[str]) -> list[str]:
    """Return what came back to a converted container.

    Zero does not count: a LimitRange makes us write it, and it asks for nothing.
    """
    resources = as_object(container.get("resources"), "resources")
    kept = [as_object(resources.get(section), section) for section in ("limits", "requests")]
    return [n for n in names if any(n in amounts and not _is_zero(amounts[n]) for amounts in kept)]


def _is_zero(amount: object) -> bool:
    try:
        return parse(amount).nanos == 0
    except QuantityError:
        return False


def _check_reaches_scheduler(pod: Json) -> None:
    """Refuse a pod for which no scheduler would ever allocate a claim (ruling 16)."""
    node = as_object(pod.get("spec"), "spec").get("nodeName")
    if node:
        raise RejectedPod(
            "spec.nodeName",
            f"found {node!r}, expected none: a pod that names its node passes the scheduler by,"
            " and only the scheduler allocates cards",
            "use nodeSelector or affinity on kubernetes.io/hostname",
        )


def _privileged(pod: Json, policy: Policy) -> tuple[Notice, ...]:
    """Refuse, or tell of, privileged containers: they see every card of the node (ruling 16)."""
    found = tuple(
        Notice(
            Code.PRIVILEGED,
            f"{place.path}.securityContext.privileged",
            f"container {place.name} is privileged and sees every card of its node",
        )
        for place in places(pod)
        if _security(place).get("privileged") is True
    )
    if found and policy.privileged == "reject":
        raise RejectedPod(found[0].path, found[0].message, "drop privileged, or ask for no card")
    return found


def _security(place: Place) -> Json:
    return as_object(place.container.get("securityContext"), f"{place.path}.securityContext")


class _Making:
    """One migration in the making: the edited pod, and what goes with it."""

    def __init__(
        self,
        pod: Json,
        *,
        policy: Policy,
        cards: Cards,
        held: frozenset[str],
        converted: Mapping[str, Converted],
    ) -> None:
        self._pod = pod
        self._policy = policy
        self._cards = cards
        self._held = held
        self._edit = PodEdit(pod, converted)
        self._templates: dict[str, Template] = {}
        self._notices: list[Notice] = []
        self._changed = False

    def visit(self, place: Place) -> None:
        """Deal with one container that carries managed resources."""
        families = [f for f in self._policy.families if carries(place.container, managed_names(f))]
        if place.name in self._edit.records:
            self._strip_again(place, families)
            return
        for family in families:
            request = read_request(place.container, place.path, family)
            if request is None:
                self._notice(
                    Code.NOT_CONVERTED,
                    f"{place.path}.resources",
                    f"no {family.resources.count} is asked for and the policy adds none",
                )
            else:
                self._convert(place, family, request)

    def _strip_again(self, place: Place, families: list[Family]) -> None:
        """Remove what came back to a converted container, by a LimitRange for example."""
        names = [name for family in families for name in managed_names(family)]
        self._edit.strip(place, names, held=self._held)
        self._changed = True
        back = ", ".join(_asked_again(place.container, names))
        self._notice(
            Code.STRIPPED_AGAIN,
            f"{place.path}.resources",
            f"removed {back} again; the container was converted before",
        )

    def _convert(self, place: Place, family: Family, request: Request) -> None:
        removed = self._edit.strip(place, managed_names(family), held=self._held)
        claims = (self._claim(place, family, request),) if request.count else ()
        self._add_priority(place, family, request)
        self._notices.extend(request.notices)
        before = self._edit.records.get(place.name, Converted())
        self._edit.records[place.name] = before.extended(claims, removed)
        self._changed = True

    def _claim(self, place: Place, family: Family, request: Request) -> str:
        metadata = as_object(self._pod.get("metadata"), "metadata")
        annotations = as_object(metadata.get("annotations"), "metadata.annotations")
        template = build_template(
            request,
            family,
            selectors=selectors(annotations, family),
            repeats_cards=self._policy.repeats_cards,
            cards=self._cards,
        )
        self._templates[template.name] = template
        if request.exclusive and not family.publishes_slots:
            self._notice(
                Code.EXCLUSIVITY_WEAKER,
                request.path,
                "the driver publishes no slots, so others may join the card while memory lasts",
            )
        if request.count > 1 and not self._policy.kubernetes:
            self._notice(
                Code.KUBERNETES_ASSUMED,
                request.path,
                f"asks for {request.count} cards in the form of Kubernetes 1.36 and newer",
            )
        return self._edit.claim(place, f"{family.entry_prefix}-{place.name}", template.name)

    def _add_priority(self, place: Place, family: Family, request: Request) -> None:
        if request.priority is not None:
            self._edit.add_variable(place, family.priority_variable, str(request.priority))

    def _notice(self, code: Code, path: str, message: str) -> None:
        self._notices.append(Notice(code, path, message))

    def finish(self, *, also: tuple[Notice, ...]) -> Migration:
        """Return the difference between the pod and its copy; `also` speaks of the whole pod."""
        self._notices.extend(also)
        if not self._changed:
            return Migration(notices=tuple(self._notices))
        self._edit.replace_scheduler(self._policy.legacy_schedulers, self._policy.target_scheduler)
        for path in self._edit.drop_scheduler_marks():
            self._notice(Code.MARK_DROPPED, path, "removed; HAMi's scheduler wrote it")
        patch: list[Json] = jsonpatch.make_patch(self._pod, self._edit.finish()).patch
        return Migration(patch, tuple(self._templates.values()), tuple(self._notices))
