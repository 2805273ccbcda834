"""Who holds what of which card, read from what the API server stores."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hami_dra.lab.api import Api
from hami_dra.migration import Json
from hami_dra.migration.quantity import parse

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Share:
    """What one pod holds of one card.

    Attributes:
        pod: its name.
        namespace: its namespace.
        node: where the card is.
        device: the card's name in its slice.
        uuid: the card's UUID.
        product: the card's model.
        memory_mib: memory that is charged, in MiB.
        cores: compute that is charged, in percent.
        slots: slots that are charged.
    """

    pod: str
    namespace: str
    node: str
    device: str
    uuid: str
    product: str
    memory_mib: int
    cores: int
    slots: int


def read_shares(api: Api, namespace: str = "") -> list[Share]:
    """Return the shares that pods hold, of one namespace or of all, by pod and card."""
    cards = _cards(api.list("resourceslices"))
    claims = api.list("resourceclaims", namespace=namespace)
    return sorted(
        (share for claim in claims for share in _shares(claim, cards)),
        key=lambda share: (share.namespace, share.pod, share.node, share.device),
    )


def tenants(shares: Iterable[Share]) -> Mapping[str, int]:
    """Count the shares of each card, by its UUID."""
    return Counter(share.uuid for share in shares)


def _cards(slices: Iterable[Json]) -> dict[tuple[str, str], Json]:
    """Index the published cards by pool and device name."""
    return {
        (each["spec"]["pool"]["name"], device["name"]): device
        for each in slices
        for device in each["spec"].get("devices") or ()
    }


def _shares(claim: Json, cards: Mapping[tuple[str, str], Json]) -> Iterator[Share]:
    """Yield a share for each pod that a claim is reserved for and each device it holds."""
    status = claim.get("status") or {}
    results = (status.get("allocation") or {}).get("devices", {}).get("results") or ()
    for consumer in status.get("reservedFor") or ():
        for result in results:
            device = cards[result["pool"], result["device"]]
            consumed = result.get("consumedCapacity") or {}
            yield Share(
                pod=consumer["name"],
                namespace=claim["metadata"]["namespace"],
                node=result["pool"],
                device=result["device"],
                uuid=device["attributes"]["uuid"]["string"],
                product=device["attributes"]["productName"]["string"],
                memory_mib=parse(consumed["memory"]).integer // _MIB,
                cores=parse(consumed["cores"]).integer,
                slots=parse(consumed["slots"]).integer,
            )
