"""Write: from one container's meaning to a ResourceClaimTemplate, named by its content.

Equal requests give equal specs and thus one object; the name says in words what it holds.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from hami_dra.migration.json import Json
from hami_dra.migration.legacy import Request
from hami_dra.migration.notice import RejectedPod
from hami_dra.migration.policy import Family
from hami_dra.migration.quantity import QuantityError, parse
from hami_dra.migration.selector import attribute_equals_memory

MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "hami-dra"}
"""Label of everything we write; the watch cache and `hami-dra prune` select by it."""

WHOLE_CARD: Final = 100
"""Cores, and slots, of one card."""

_MOST_SIZES: Final = 8  # resource.k8s.io/v1: at most 8 alternatives in firstAvailable
_MOST_DEVICES: Final = 32  # resource.k8s.io/v1: at most 32 devices, and requests, in a claim


@dataclass(frozen=True, slots=True)
class Cards:
    """What is known of the cluster's cards, as aggregates.

    Attributes:
        memory_mib: the different memory sizes of shareable cards, in MiB.
    """

    memory_mib: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Template:
    """A ResourceClaimTemplate without a namespace.

    Attributes:
        name: `hami-<count>x<memory>-<cores>c-<10 hex digits of the spec's hash>` (ruling 24).
        spec: the template's `.spec`.
    """

    name: str
    spec: Json

    def manifest(self, namespace: str | None = None) -> Json:
        """Return the whole object, ready to be created."""
        metadata: Json = {"name": self.name, "labels": dict(MANAGED_BY)}
        if namespace:
            metadata["namespace"] = namespace
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": metadata,
            "spec": self.spec,
        }

    def same_as(self, found: Json) -> bool:
        """Tell whether an object read from the API server has this spec.

        Quantities compare by value, since the server rewrites `8192Mi` as `8Gi`.
        """
        return _canonical(found.get("spec")) == _canonical(self.spec)


def build_template(
    request: Request,
    family: Family,
    *,
    selectors: tuple[str, ...],
    repeats_cards: bool,
    cards: Cards,
) -> Template:
    """Build the template for what one container asks of one family.

    Args:
        request: what the container means in legacy words; at least one card.
        family: whose DeviceClass and capacities to use.
        selectors: CEL expressions that a card must satisfy.
        repeats_cards: whether the cluster may give one card twice to a request for several, which
            decides the form of the claim (ruling 10).
        cards: the sizes that a percentage is resolved against (ruling 7).

    Raises:
        RejectedPod: if the API cannot express it.
    """
    if request.count > _MOST_DEVICES:
        raise RejectedPod(
            f"{request.path}.{family.resources.count}",
            f"found {request.count} cards, expected at most {_MOST_DEVICES}, which is Kubernetes'"
            " limit for one claim",
            "spread the work over several pods",
        )
    alternatives = _alternatives(request, family, selectors=selectors, cards=cards)
    devices = _devices(alternatives, request.count, family, repeats_cards=repeats_cards)
    spec: Json = {"metadata": {"labels": dict(MANAGED_BY)}, "spec": {"devices": devices}}
    return Template(name=_name(request, spec), spec=spec)


def _alternatives(
    request: Request, family: Family, *, selectors: tuple[str, ...], cards: Cards
) -> list[Json]:
    """Return the forms of one card that satisfy the request, best first; most requests have one."""
    if request.percentage is None:
        return [_exact(request, family, selectors, memory_mib=request.memory_mib)]
    sizes = sorted(cards.memory_mib)
    if not sizes or len(sizes) > _MOST_SIZES:
        raise RejectedPod(
            f"{request.path}.{family.resources.percentage}",
            f"found {request.percentage} percent, which needs the card sizes of the cluster: "
            f"{len(sizes)} are known, expected 1 to {_MOST_SIZES}",
            f"write the amount as {family.resources.memory} in MiB",
        )
    return [
        _exact(
            request,
            family,
            (*selectors, attribute_equals_memory(family, size)),
            memory_mib=size * request.percentage // 100,
        )
        for size in sizes
    ]


def _exact(
    request: Request, family: Family, selectors: tuple[str, ...], *, memory_mib: int | None
) -> Json:
    """Build one exact request for one card.

    Every field that the API server would default is written, so that stored and sent are equal.
    """
    capacity: Json = {"cores": str(request.cores)}
    if memory_mib is not None:
        capacity["memory"] = f"{memory_mib}Mi"
    if request.exclusive and family.publishes_slots:
        capacity["slots"] = str(WHOLE_CARD)
    exact: Json = {
        "deviceClassName": family.device_class,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": capacity},
    }
    if selectors:
        exact["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
    return exact


def _devices(alternatives: list[Json], count: int, family: Family, *, repeats_cards: bool) -> Json:
    """Ask for different cards in the form that the cluster honours (ruling 10)."""
    name = family.entry_prefix
    if count == 1 or not repeats_cards:
        return {"requests": [_request(name, alternatives, count)]}
    names = [f"{name}-{index}" for index in range(count)]
    distinct = {"requests": names, "distinctAttribute": f"{family.driver}/{family.uuid_attribute}"}
    return {
        "requests": [_request(each, alternatives, 1) for each in names],
        "constraints": [distinct],
    }


def _request(name: str, alternatives: list[Json], count: int) -> Json:
    counted = [{**deepcopy(alternative), "count": count} for alternative in alternatives]
    if len(counted) == 1:
        return {"name": name, "exactly": counted[0]}
    ranked = [{"name": f"size-{rank}", **each} for rank, each in enumerate(counted)]
    return {"name": name, "firstAvailable": ranked}


def _name(request: Request, spec: Json) -> str:
    digest = hashlib.sha256(_canonical(spec).encode()).hexdigest()[:10]
    if request.percentage is not None:
        memory = f"{request.percentage}pct"
    else:
        memory = "full" if request.memory_mib is None else f"{request.memory_mib}mi"
    return f"hami-{request.count}x{memory}-{request.cores}c-{digest}"


def _canonical(spec: object) -> str:
    """Render a spec as text that is equal for equal meaning."""
    return json.dumps(_with_plain_amounts(spec), sort_keys=True, separators=(",", ":"))


def _with_plain_amounts(node: object, *, amounts: bool = False) -> object:
    if isinstance(node, Mapping):
        return dict(_plain_items(node, amounts=amounts))
    if isinstance(node, list):
        return [_with_plain_amounts(item) for item in node]
    if amounts:
        try:
            return parse(node).canonical
        except QuantityError:
            return node
    return node


def _plain_items(node: Mapping[str, Any], *, amounts: bool) -> Iterator[tuple[str, object]]:
    """Walk an object; `capacity.requests` is the one place of a spec that holds quantities."""
    for key, value in node.items():
        inside = isinstance(value, Mapping) and key == "requests"
        yield key, _with_plain_amounts(value, amounts=amounts if not inside else True)
