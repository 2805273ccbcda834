"""What was collected of a cluster: dicts as the API server returned them, or why there are none.

Pure; `collect` fills it. Whoever already watches a part of it can fill that part alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from hami_dra.migration import Json
from hami_dra.migration.inventory import Sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Hidden:
    """Something that could not be read.

    Attributes:
        reason: why, such as the API server's refusal.
    """

    reason: str


class HiddenError(Exception):
    """A judge asked for something that could not be read."""


NOT_READ: Final = Hidden("it was not read")


def known(part: T | Hidden) -> T:
    """Return what was read.

    Raises:
        HiddenError: if it could not be.
    """
    if isinstance(part, Hidden):
        raise HiddenError(part.reason)
    return part


@dataclass(frozen=True, slots=True)
class Probe:
    """What became of an object that was sent as a dry run.

    Attributes:
        stored: as it would have been stored; None when it was refused.
        refusal: the API server's words; empty when it was accepted.
    """

    stored: Json | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Pool:
    """What one ResourceSlice says of its cards.

    Attributes:
        driver: the DRA driver.
        node: the node; empty for a slice of the network.
        sizes: pool, generation and sizes of the shareable cards.
        devices: how many there are.
        shareable: how many of them can have several tenants.
        capacities: names that every one of these publishes.
    """

    driver: str
    node: str
    sizes: Sizes
    devices: int
    shareable: int
    capacities: frozenset[str]


@dataclass(frozen=True, slots=True)
class Node:
    """What of a node matters here.

    Attributes:
        name: its name.
        allocatable: amounts by resource name.
        annotations: those of HAMi.
    """

    name: str
    allocatable: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Served:
    """What the webhook shows to whoever dials it.

    Attributes:
        certificate_pem: its certificate; empty where it cannot be dialled from here.
        distrust: why a client with the registered caBundle refuses it; empty when it does not.
        ready: what `/readyz` answered; None when nothing.
    """

    certificate_pem: bytes
    distrust: str
    ready: Json | None


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a burst of pods got its claims.

    Attributes:
        pods: how many pods there were.
        created_s: seconds until the last one was created.
        seconds: until the last one knew its claim.
    """

    pods: int
    created_s: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the facts are judged by.

    Attributes:
        now: when it was collected.
        server: the answer of `/version`.
        api: the resources of `resource.k8s.io/v1`; None when it is not served.
        capacity: a ResourceClaimTemplate with a capacity request.
        alternatives: a ResourceClaimTemplate with `firstAvailable`.
        classes: all DeviceClasses.
        pools: all ResourceSlices.
        nodes: all nodes.
        mutating: all MutatingWebhookConfigurations.
        validating: our ValidatingWebhookConfiguration; None when there is none.
        guard: our ValidatingAdmissionPolicy; None when there is none.
        guard_binding: its binding; None when there is none.
        schedulers: HAMi's scheduler Deployments.
        limit_ranges: all LimitRanges.
        quotas: all ResourceQuotas.
        pod: a legacy pod.
        claim: a claim for the policy's DeviceClass.
        served: what the webhook shows.
        rate: how fast claims appear; hidden unless measured.
    """

    now: datetime
    server: Json | Hidden = NOT_READ
    api: Json | Hidden | None = NOT_READ
    capacity: Probe | Hidden = NOT_READ
    alternatives: Probe | Hidden = NOT_READ
    classes: list[Json] | Hidden = NOT_READ
    pools: list[Pool] | Hidden = NOT_READ
    nodes: list[Node] | Hidden = NOT_READ
    mutating: list[Json] | Hidden = NOT_READ
    validating: Json | Hidden | None = NOT_READ
    guard: Json | Hidden | None = NOT_READ
    guard_binding: Json | Hidden | None = NOT_READ
    schedulers: list[Json] | Hidden = NOT_READ
    limit_ranges: list[Json] | Hidden = NOT_READ
    quotas: list[Json] | Hidden = NOT_READ
    pod: Probe | Hidden = NOT_READ
    claim: Probe | Hidden = NOT_READ
    served: Served | Hidden = NOT_READ
    rate: Rate | Hidden = NOT_READ
