"""Write: from one container's meaning to a ResourceClaimTemplate, named by its content.

Equal requests give equal specs and thus one object; the name says in words what it holds.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from hami_dra.migration.json import Json
from hami_dra.migration.quantity import QuantityError, parse
from hami_dra.migration.selector import has_memory

MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "hami-dra"}
"""Label of everything we write; the watch cache and `hami-dra prune` select by it."""

MOST_CARDS: Final = 32
"""resource.k8s.io/v1: at most 32 devices, and as many requests, in one claim."""

MOST_SIZES: Final = 8
"""resource.k8s.io/v1: at most 8 alternatives in `firstAvailable`."""

# More different requests than a cluster ever has at one time; bounds what is remembered.
_REMEMBERED: Final = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """All that decides a template's spec; equal shapes are one template.

    Attributes:
        device_class: the DeviceClass.
        driver: domain of the attributes that the conditions name.
        request: name of the request.
        count: number of different cards.
        capacity: name and amount of each capacity, without a memory that depends on the size.
        memory_by_size: MiB of a card and MiB of it, for each size in ascending order; empty when
            the amount does not depend on the card.
        selectors: CEL conditions on the cards.
        distinct: the attribute by which different cards are told apart where the cluster does not
            do it by itself; empty where it does (ruling 10).
        words: what the name says: count, memory and cores.
        annotations: of every claim: what a node agent has to know and no capacity says.
    """

    device_class: str
    driver: str
    request: str
    count: int
    capacity: tuple[tuple[str, str], ...]
    memory_by_size: tuple[tuple[str, int, int], ...]
    selectors: tuple[str, ...]
    distinct: str
    words: str
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """A ResourceClaimTemplate without a namespace; shared, so never to be changed.

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
            "spec": deepcopy(self.spec),
        }

    def same_as(self, found: Json) -> bool:
        """Tell whether an object read from the API server has this spec.

        Quantities compare by value, since the server rewrites `8192Mi` as `8Gi`.
        """
        return _canonical(found.get("spec")) == _canonical(self.spec)


@lru_cache(maxsize=_REMEMBERED)
def build_template(shape: Shape) -> Template:
    """Build the template of a shape; the same shape gives the very same object."""
    devices = _devices(shape, _alternatives(shape))
    metadata: Json = {"labels": dict(MANAGED_BY)}
    if shape.annotations:
        metadata["annotations"] = dict(shape.annotations)
    spec: Json = {"metadata": metadata, "spec": {"devices": devices}}
    digest = hashlib.sha256(_canonical(spec).encode()).hexdigest()[:10]
    return Template(name=f"hami-{shape.words}-{digest}", spec=spec)


def _alternatives(shape: Shape) -> list[Json]:
    """Return the forms of one card that satisfy the shape, best first; most shapes have one."""
    if not shape.memory_by_size:
        return [_exact(shape, shape.capacity, shape.selectors)]
    return [
        _exact(
            shape,
            (*shape.capacity, (name, f"{share}Mi")),
            (*shape.selectors, has_memory(shape.driver, name, size)),
        )
        for name, size, share in shape.memory_by_size
    ]


def _exact(shape: Shape, capacity: tuple[tuple[str, str], ...], selectors: tuple[str, ...]) -> Json:
    """Build one exact request.

    Every field that the API server would default is written, so that stored and sent are equal.
    """
    exact: Json = {
        "deviceClassName": shape.device_class,
        "allocationMode": "ExactCount",
        "count": 1 if shape.distinct else shape.count,
    }
    if capacity:
        exact["capacity"] = {"requests": dict(capacity)}
    if selectors:
        exact["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
    return exact


def _devices(shape: Shape, alternatives: list[Json]) -> Json:
    """Ask for different cards in the form that the cluster honours (ruling 10)."""
    if not shape.distinct:
        return {"requests": [_request(shape.request, alternatives)]}
    names = [f"{shape.request}-{index}" for index in range(shape.count)]
    return {
        "requests": [_request(name, alternatives) for name in names],
        "constraints": [{"requests": names, "distinctAttribute": shape.distinct}],
    }


def _request(name: str, alternatives: list[Json]) -> Json:
    own = deepcopy(alternatives)
    if len(own) == 1:
        return {"name": name, "exactly": own[0]}
    return {
        "name": name,
        "firstAvailable": [{"name": f"size-{rank}", **each} for rank, each in enumerate(own)],
    }


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
        yield key, _with_plain_amounts(value, amounts=amounts or inside)
