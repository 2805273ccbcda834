"""One migration in the making: each container's claims first, then what the whole pod needs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hami_dra.migration.cards import Cards
from hami_dra.migration.claim import Shape, Template, build_template
from hami_dra.migration.difference import difference
from hami_dra.migration.edit import NamespaceLimits, PodEdit
from hami_dra.migration.family import Family
from hami_dra.migration.hint import choose, control_disabled, lost_hints, wants_empty_card
from hami_dra.migration.json import Json, as_object
from hami_dra.migration.legacy import WHOLE, Request, carries, read_request
from hami_dra.migration.notice import Code, Notice
from hami_dra.migration.place import Place
from hami_dra.migration.policy import CORE_POLICY_VARIABLE, LOG_LEVEL_VARIABLE, Policy
from hami_dra.migration.quantity import QuantityError, parse
from hami_dra.migration.record import Converted, Record
from hami_dra.migration.selector import model_test
from hami_dra.migration.shape import shape_of


@dataclass(frozen=True, slots=True)
class Migration:
    """What has to happen to a pod so that it runs on DRA.

    Equal pods may be given the very same object, so neither it nor its patch is ever to be changed.

    Attributes:
        patch: RFC 6902 operations on the pod; empty when nothing changes.
        templates: the templates that must exist in the pod's namespace before the pod does.
        notices: what a person may want to know.
        claims: the template of each claim that the pod newly gets, so of equal claims the same one
            several times.
    """

    patch: list[Json] = field(default_factory=list)
    templates: tuple[Template, ...] = ()
    notices: tuple[Notice, ...] = ()
    claims: tuple[Template, ...] = ()


@dataclass(slots=True)
class _Held:
    """A claim that a container got.

    Attributes:
        family: whose cards it is for.
        request: what its container asked for.
        entry: its name in the pod.
        template: what it is made from.
        place: its own container.
    """

    family: Family
    request: Request
    entry: str
    template: Template
    place: Place


def asked_again(container: Json, names: Iterable[str]) -> list[str]:
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


class Making:
    """Collects what becomes of a pod.

    Args:
        pod: as it was found.
        policy: what a migration means here.
        cards: what is known of the cluster's cards.
        limits: what the namespace's LimitRanges insist on.
        record: what was done to the pod before.
        notices: what is known of the pod as a whole.
    """

    def __init__(
        self,
        pod: Json,
        *,
        policy: Policy,
        cards: Cards,
        limits: NamespaceLimits,
        record: Record,
        notices: Iterable[Notice],
    ) -> None:
        metadata = as_object(pod.get("metadata"), "metadata")
        self._annotations: Mapping[str, object] = as_object(
            metadata.get("annotations"), "metadata.annotations"
        )
        self._pod = pod
        self._policy = policy
        self._cards = cards
        self._edit = PodEdit(pod, record, limits)
        self._claims: list[_Held] = []
        self._notices = list(notices)
        self._served: defaultdict[str, set[str]] = defaultdict(set)
        self._changed = False

    def convert(self, work: Iterable[Place]) -> None:
        """Deal with the containers that carry managed resources.

        Those that run to the end come first, because init containers may share their claims.
        """
        for place in sorted(work, key=lambda place: place.ends_early):
            families = [
                family
                for family in self._policy.families
                if carries(place.container, family.managed_names)
            ]
            if place.name in self._edit.record.containers:
                self._strip_again(place, families)
            else:
                for family in families:
                    self._convert(place, family)

    def _strip_again(self, place: Place, families: list[Family]) -> None:
        """Remove what came back to a converted container, by a LimitRange for example."""
        names = [name for family in families for name in family.managed_names]
        back = ", ".join(asked_again(place.container, names))
        self._edit.strip(place, names)
        self._changed = True
        self._notice(
            Code.STRIPPED_AGAIN,
            f"{place.path}.resources",
            f"removed {back} again; the container was converted before",
        )

    def _convert(self, place: Place, family: Family) -> None:
        if not family.device_class:
            message = f"the policy names no DeviceClass for {family.name}"
            self._notice(Code.NOT_CONVERTED, f"{place.path}.resources", message)
            return
        request = read_request(place.container, place.path, family, self._annotations)
        if request is None:
            message = f"no {family.resources.count} is asked for and the policy adds none"
            self._notice(Code.NOT_CONVERTED, f"{place.path}.resources", message)
            return
        removed = self._edit.strip(place, family.managed_names)
        claims: tuple[str, ...] = ()
        if request.count:
            claims = (self._claim(place, family, request),)
            self._served[place.name].add(family.name)
        if request.priority is not None:
            self._edit.set_variable(place, family.priority_variable, str(request.priority))
        self._notices.extend(request.notices)
        if claims and control_disabled(place):
            message = "CUDA_DISABLE_CONTROL switches the container's own limits off"
            self._notice(Code.CONTROL_DISABLED, f"{place.path}.env", message)
        containers = self._edit.record.containers
        before = containers.get(place.name, Converted())
        containers[place.name] = before.extended(claims, removed)
        self._changed = True

    def _claim(self, place: Place, family: Family, request: Request) -> str:
        """Give a container its claim, or a share in one that another container will use later."""
        if place.ends_early:
            shared = self._claim_that_holds(place, family, request)
            if shared is not None:
                self._make_room(shared, request)
                self._edit.use_claim(place, shared.entry)
                return shared.entry
            self._notice(Code.INIT_RESERVED, request.path, _reserved(request))
        self._notice_doubts(family, request)
        template = build_template(self._shape(family, request))
        name = self._edit.add_claim(place, f"{family.entry_prefix}-{place.name}", template.name)
        held = _Held(family, request, name, template, place)
        self._claims.append(held)
        return name

    def _claim_that_holds(self, place: Place, family: Family, request: Request) -> _Held | None:
        """Find a claim for an init container to use until its container starts (ruling 15).

        Legacy reserved the larger of both, so a need that fits inside costs nothing. A sidecar that
        starts before runs beside it, and of one claim they would share one limit.
        """
        return next(
            (
                claim
                for claim in self._claims
                if place.ends_before(claim.place)
                and claim.family is family
                and claim.request.holds(request)
            ),
            None,
        )

    def _make_room(self, claim: _Held, request: Request) -> None:
        """Let a claim of whole cards accept only those that hold what an init container needs."""
        widened = claim.request.on_cards_for(request)
        if widened != claim.request:
            claim.request = widened
            claim.template = build_template(self._shape(claim.family, widened))
            self._edit.make_from(claim.entry, claim.template.name)

    def _is_alone(self, request: Request) -> bool:
        return request.cores == WHOLE or wants_empty_card(self._annotations, self._policy.hints)

    def _notice_doubts(self, family: Family, request: Request) -> None:
        alone = self._is_alone(request)
        if alone and not family.capacities.slots and family.count_is_exclusive:
            message = "the driver publishes no slots, so others may join while memory lasts"
            self._notice(Code.EXCLUSIVITY_WEAKER, request.path, message)
        if request.count > 1 and not self._policy.kubernetes:
            message = f"asks for {request.count} cards in the form of Kubernetes 1.36 and newer"
            self._notice(Code.KUBERNETES_ASSUMED, request.path, message)

    def _shape(self, family: Family, request: Request) -> Shape:
        return shape_of(
            request,
            family,
            choose(self._annotations, family),
            alone=self._is_alone(request),
            repeats_cards=self._policy.repeats_cards,
            sizes=() if request.percentage is None else self._sizes(family),
            core_policy=self._policy.core_policy,
        )

    def _sizes(self, family: Family) -> tuple[int, ...]:
        """Return the sizes of the cards that the pod accepts, which a percentage is of."""
        return self._cards.sizes(family.driver, model_test(self._annotations, family))

    def _notice(self, code: Code, path: str, message: str) -> None:
        self._notices.append(Notice(code, path, message))

    def finish(self, every: Iterable[Place]) -> Migration:
        """Give the whole pod what its GPU containers need, and return the difference."""
        if not self._changed:
            return Migration(notices=tuple(self._notices))
        for place in every:
            self._set_variables(place)
        self._edit.replace_scheduler(self._policy.legacy_schedulers, self._policy.target_scheduler)
        if self._claims:
            self._finish_gpu_pod()
        for path in self._edit.drop_scheduler_marks():
            self._notice(Code.MARK_DROPPED, path, "removed; HAMi's scheduler wrote it")
        patch = difference(self._pod, self._edit.finish())
        made = tuple(claim.template for claim in self._claims)
        templates = {template.name: template for template in made}
        return Migration(patch, tuple(templates.values()), tuple(self._notices), made)

    def _set_variables(self, place: Place) -> None:
        """Hand on what the policy tells the native library, as the legacy webhook did."""
        policy = self._policy
        if policy.core_policy not in {"", "default"}:
            self._edit.set_variable(place, CORE_POLICY_VARIABLE, policy.core_policy)
        if policy.log_level and place.name in self._served:
            self._edit.set_variable(place, LOG_LEVEL_VARIABLE, policy.log_level)
        if policy.hide_cards and not self._was_served(place):
            for family in policy.families:
                if family.visible_variable and family.name not in self._served[place.name]:
                    self._edit.set_variable(place, family.visible_variable, family.visible_none)

    def _was_served(self, place: Place) -> bool:
        """Tell whether the container got its claims in an earlier pass, and its variables too."""
        done = self._edit.record.containers.get(place.name)
        return done is not None and bool(done.claims) and place.name not in self._served

    def _finish_gpu_pod(self) -> None:
        """Set the fields that pods with a card get, and tell what they cannot keep."""
        if self._policy.runtime_class:
            self._edit.default_runtime_class(self._policy.runtime_class)
        for family in self._policy.families:
            if any(family.name in names for names in self._served.values()):
                self._notices.extend(lost_hints(self._annotations, self._policy.hints, family))
                if self._policy.add_toleration:
                    self._edit.add_toleration(family.resources.count)


def _reserved(request: Request) -> str:
    """Say what an init container's own claim costs beyond what legacy reserved (ruling 15)."""
    memory = "all memory" if request.memory_mib is None else f"{request.memory_mib} MiB"
    if request.percentage is not None:
        memory = f"{request.percentage} percent of the memory"
    cards = "1 card" if request.count == 1 else f"{request.count} cards"
    return (
        f"{memory} and {request.cores} percent of {cards} stay reserved for it while the pod lives;"
        " HAMi reserved the larger of init and app containers"
    )
