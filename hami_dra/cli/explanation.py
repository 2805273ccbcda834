"""Say what each container of a pod asked for, what it gets, and why.

Every fact is the migration's own: its record, its templates, its notices, and the request that it
read. Nothing is decided here.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from hami_dra.cli.patching import patched
from hami_dra.cli.workloads import Workload
from hami_dra.migration import Cards, Family, Json, Notice, Policy, RejectedPod, migrate
from hami_dra.migration.legacy import WHOLE, Request, carries, read_request
from hami_dra.migration.place import Place, places
from hami_dra.migration.quantity import QuantityError, parse
from hami_dra.migration.record import read

_UNTIL_SLASH: Final = "/"
_THOUSANDS: Final = ("k", "M")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What becomes of one container.

    Attributes:
        workload: `Kind/name`, with the place of the pod where there are several.
        container: its name.
        asked: in legacy words.
        becomes: what it gets.
        why: reasons, one line each.
        notices: what to know of it, or of its pod.
        claim: its entry in the pod; empty for none.
        template: the template of that entry; empty for none.
        rejected: why the pod cannot be converted; empty for one that can.
    """

    workload: str
    container: str
    asked: tuple[str, ...]
    becomes: tuple[str, ...]
    why: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    claim: str = ""
    template: str = ""
    rejected: str = ""

    def as_json(self) -> Json:
        """Return it for machines."""
        fields: Json = {
            "workload": self.workload,
            "container": self.container,
            "asked": list(self.asked),
            "becomes": list(self.becomes),
            "why": list(self.why),
            "notices": list(self.notices),
            "claim": self.claim,
            "template": self.template,
            "rejected": self.rejected,
        }
        return {key: value for key, value in fields.items() if value}


def explain(workload: Workload, policy: Policy, cards: Cards) -> Iterator[Explanation]:
    """Explain the containers of a pod that ask for managed resources."""
    pod = workload.pod
    title = workload.thing.title + (f" ({workload.path})" if workload.path else "")
    try:
        asking = [p for p in places(pod) if carries(p.container, policy.managed_names)]
        if not asking:
            return
        migration = migrate(pod, policy, cards)
    except RejectedPod as rejected:
        yield Explanation(title, "", _words_of_all(pod, policy), (), rejected=str(rejected))
        return
    after = patched(copied(pod), [((), migration.patch)])
    templates = {template.name: template.spec for template in migration.templates}
    done = read(after)
    for place in asking:
        converted = done.containers.get(place.name)
        claims = converted.claims if converted else ()
        entries = {e["name"]: e["resourceClaimTemplateName"] for e in _entries(after, claims)}
        notices = tuple(str(n) for n in migration.notices if _concerns(n, place, asking[0]))
        yield Explanation(
            workload=title,
            container=place.name,
            asked=tuple(words(place.container, policy)),
            becomes=tuple(_becomes(entries, templates)) or _nothing(is_converted=bool(converted)),
            why=tuple(_why(pod, place, policy, templates, entries)),
            notices=notices,
            claim=", ".join(entries),
            template=", ".join(entries.values()),
        )


def _nothing(*, is_converted: bool) -> tuple[str, ...]:
    return ("no card",) if is_converted else ("stays as it is",)


def copied(node: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return plain JSON as an object of its own, which may be changed."""
    if isinstance(node, dict):
        return {key: copied(value) for key, value in node.items()}
    return [copied(item) for item in node] if isinstance(node, list) else node


def _entries(pod: Json, claims: tuple[str, ...]) -> list[Json]:
    found = pod.get("spec", {}).get("resourceClaims") or []
    return [each for each in found if each.get("name") in claims]


def _concerns(notice: Notice, place: Place, first: Place) -> bool:
    """Tell whether a notice is of a container, or of the whole pod and this is the first one."""
    is_of_container = notice.path.startswith(("spec.containers[", "spec.initContainers["))
    return notice.path.startswith(f"{place.path}.") or (not is_of_container and place is first)


def _words_of_all(pod: Json, policy: Policy) -> tuple[str, ...]:
    try:
        found = places(pod)
    except RejectedPod:
        return ()
    return tuple(word for place in found for word in words(place.container, policy))


def words(container: Json, policy: Policy) -> Iterator[str]:
    """Yield what a container asks for as it is written, with the vendor left out."""
    resources = container.get("resources")
    sections = resources if isinstance(resources, dict) else {}
    amounts: dict[str, object] = {}
    for section in ("requests", "limits"):
        found = sections.get(section)
        amounts |= found if isinstance(found, dict) else {}
    for name in policy.managed_names:
        if name in amounts:
            yield f"{name.rpartition(_UNTIL_SLASH)[2]}={_digits(amounts[name])}"


def _digits(amount: object) -> object:
    """Undo what an API server makes of whole thousands: 8000 MiB come back from it as 8k."""
    if isinstance(amount, str) and amount.endswith(_THOUSANDS):
        with suppress(QuantityError):
            return parse(amount).integer
    return amount


def _becomes(entries: Mapping[str, str], templates: Mapping[str, Json]) -> Iterator[str]:
    """Yield what the claims ask the driver for."""
    for name, template in entries.items():
        yield f"claim {name}"
        spec = templates.get(template)
        if spec is None:
            yield f"from {template}"
            continue
        for request in spec["spec"]["devices"]["requests"]:
            alternatives = request.get("firstAvailable") or [request["exactly"]]
            for rank, exact in enumerate(alternatives):
                yield ("or " if rank else "") + _card(exact)


def _card(exact: Json) -> str:
    cards = "1 card" if exact["count"] == 1 else f"{exact['count']} cards"
    asked = (exact.get("capacity") or {}).get("requests") or {}
    amounts = ", ".join(f"{name} {amount}" for name, amount in asked.items())
    return f"{cards}: {amounts or 'whole'}"


def _why(
    pod: Json,
    place: Place,
    policy: Policy,
    templates: Mapping[str, Json],
    entries: Mapping[str, str],
) -> Iterator[str]:
    """Yield the reasons that the request which legacy read gives."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    for family in policy.families:
        if not family.device_class or not carries(place.container, family.managed_names):
            continue
        request = read_request(place.container, place.path, family, annotations)
        if request is not None:
            yield from _reasons(request, place, family)
            yield from (f"cards by annotation {name}" for name in _choices(annotations, family))
    if any(template not in templates for template in entries.values()):
        yield "converted before"


def _reasons(request: Request, place: Place, family: Family) -> Iterator[str]:
    names = family.resources
    limits = (place.container.get("resources") or {}).get("limits") or {}
    if not request.count:
        yield f"{_short(names.count)} 0 asks for no card"
        return
    if names.count not in limits:
        yield f"no {_short(names.count)}: HAMi's default, {request.count}"
    if request.cores == WHOLE:
        yield "exclusive: nobody else on the card"
    else:
        yield "shared: others may have the rest of the card"
    if not request.cores:
        yield f"no {_short(names.cores)}: compute without a limit"
    if request.percentage is not None:
        yield f"{request.percentage} % of each size of card"
    elif request.memory_mib is None:
        yield "all memory of the card"
    if request.priority is not None:
        yield f"priority in {family.priority_variable}"


def _short(name: str) -> str:
    return name.rpartition(_UNTIL_SLASH)[2]


def _choices(annotations: Mapping[str, object], family: Family) -> Iterator[str]:
    names = family.annotations
    for name in (names.use_type, names.nouse_type, names.use_uuid, names.nouse_uuid, names.mode):
        if name and annotations.get(name):
            yield _short(name)
