"""What a pod asks for in legacy words and what its claims take, in the same measure. Pure."""

from collections.abc import Iterable, Iterator

from hami_dra.migration import Family, Json, Policy, Template
from hami_dra.migration.legacy import Request, carries, read_request
from hami_dra.migration.place import Place, places
from hami_dra.quota.amounts import Amounts, largest, total
from hami_dra.quota.claim import Share, Sizes, read_asked

_WHOLE = 100


def asked_by(pod: Json, policy: Policy, sizes: Sizes) -> dict[str, int | None]:
    """Return what a pod asks for, as the scheduler counted it: init containers give way to others.

    Args:
        pod: before its conversion.
        policy: what its words mean.
        sizes: the largest card of each driver, for whole cards and percentages.

    Raises:
        RejectedPod: if one of its requests cannot be read.
    """
    early, lasting = list[Amounts](), list[Amounts]()
    for place in places(pod):
        amounts = total(_shares(pod, place, policy, sizes))
        (early if place.ends_early else lasting).append(amounts)
    return largest((total(lasting), *early))


def taken_by(
    pod: Json, templates: Iterable[Template], policy: Policy, sizes: Sizes
) -> dict[str, int | None]:
    """Return what the claims of a converted pod take, each once however many containers share it.

    Args:
        pod: after its conversion.
        templates: that it refers to.
        policy: what their requests mean.
        sizes: the largest card of each driver, for whole cards.
    """
    specs = {template.name: template.spec["spec"] for template in templates}
    entries = (pod.get("spec") or {}).get("resourceClaims") or ()
    named = (entry.get("resourceClaimTemplateName") for entry in entries)
    return total(read_asked(specs[name], policy).amounts(sizes) for name in named if name in specs)


def times(amounts: Amounts, copies: int) -> dict[str, int | None]:
    """Return the amounts of several pods that are alike."""
    if not copies:
        return {}
    return {name: None if each is None else each * copies for name, each in amounts.items()}


def _shares(pod: Json, place: Place, policy: Policy, sizes: Sizes) -> Iterator[Amounts]:
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    for family in policy.families:
        if carries(place.container, family.managed_names):
            request = read_request(place.container, place.path, family, annotations)
            if request is not None and request.count:
                yield _share(request, family, sizes).amounts(sizes)


def _share(request: Request, family: Family, sizes: Sizes) -> Share:
    memory = request.memory_mib
    if request.percentage is not None and family.driver in sizes:
        memory = sizes[family.driver] * request.percentage // _WHOLE
    return Share(family, request.count, memory, request.cores, request.slices)
