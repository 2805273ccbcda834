"""From cards to the ResourceSlice that offers them in shares (rulings 4 and 37). Pure.

Names are upstream's, so existing claims work with either driver; `slots` is ours.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hami_dra.migration import Json
from hami_dra.node.inventory import Card

CARD_TYPE: Final = "hami-gpu"
"""Value of the `type` attribute, by which the DeviceClass selects."""

WHOLE: Final = 100
"""Cores, and slots, of one card."""

UNHEALTHY: Final = "hami-dra.io/unhealthy"
"""Key of the taint of a card that failed; its value is the kind of failure."""

_MOST_DEVICES: Final = 64  # resource.k8s.io/v1: in one slice, once one of them has a taint
_LONGEST_NAME: Final = 253  # of an object
_LONGEST_VALUE: Final = 64  # of an attribute
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def resource_slice(
    cards: Sequence[Card],
    *,
    node: str,
    node_uid: str,
    driver: str,
    split_count: int = 10,
    unhealthy: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """Build the one ResourceSlice of a node.

    The order of the cards is the scheduler's order of preference: it takes the first that fits.

    Args:
        cards: what the node has; none is a valid answer, "driver up, no cards".
        node: the node's name, which is also the pool's.
        node_uid: the Node's UID, so that the slice goes when the Node does.
        driver: the DRA driver's name.
        split_count: how many tenants a card may have, HAMi's deviceSplitCount.
        unhealthy: the kind of failure of cards that get no new tenants, by UUID.

    Raises:
        ValueError: if the split count or the number of cards cannot be published.
    """
    if not 1 <= split_count <= WHOLE:
        raise ValueError(f"found split count {split_count}, expected 1 to {WHOLE}")
    if len(cards) > _MOST_DEVICES:
        raise ValueError(f"found {len(cards)} cards, expected at most {_MOST_DEVICES} on a node")
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(node, driver), "ownerReferences": [owner]},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(card, split_count, unhealthy.get(card.uuid)) for card in cards],
        },
    }


def slice_name(node: str, driver: str) -> str:
    """Name the node's slice; the leading number is how Kubernetes 1.36 orders a pool's slices.

    Raises:
        ValueError: if the two names together are too long for an object.
    """
    name = f"00000-{driver}-{node}"
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"found {name!r}, expected at most {_LONGEST_NAME} characters")
    return name


def device_name(uuid: str) -> str:
    """Name a device after its card, which minors do not survive but UUIDs do.

    Raises:
        ValueError: if the UUID is not of a form that makes a DNS label.
    """
    name = uuid.lower()
    if not _LABEL.fullmatch(name):
        raise ValueError(f"found UUID {uuid!r}, expected the form GPU-8-4-4-4-12 in hex digits")
    return name


def semver(text: str) -> str | None:
    """Write a version as Kubernetes insists: three numbers without leading zeros; or None."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 3 or not all(p.isascii() and p.isdigit() for p in parts):  # noqa: PLR2004 - major, minor, patch
        return None
    numbers = [int(part) for part in parts] + [0, 0]
    return ".".join(str(number) for number in numbers[:3])


def _device(card: Card, split_count: int, failure: str | None) -> Json:
    device: Json = {
        "name": device_name(card.uuid),
        "allowMultipleAllocations": True,
        "attributes": _attributes(card),
        "capacity": _capacities(card, split_count),
    }
    if failure is None:
        return device
    # Those who have the card keep it; whether they can go on is theirs to find out.
    taint = {"key": UNHEALTHY, "value": failure, "effect": "NoSchedule"}
    return {**device, "taints": [taint]}


def _attributes(card: Card) -> Json:
    """Publish what is known; the API server refuses a whole slice for one malformed value."""
    strings = {
        "type": CARD_TYPE,
        "uuid": card.uuid,
        "productName": card.product_name,
        "brand": card.brand,
        "architecture": card.architecture,
        "pcieBusID": card.pcie_bus_id,
        "resource.kubernetes.io/pcieRoot": card.pcie_root,
    }
    versions = {
        "cudaComputeCapability": semver(card.compute_capability),
        "driverVersion": semver(card.driver_version),
        "cudaDriverVersion": semver(card.cuda_driver_version),
    }
    return {
        "minor": {"int": card.minor},
        **{name: {"string": text[:_LONGEST_VALUE]} for name, text in strings.items() if text},
        **{name: {"version": version} for name, version in versions.items() if version},
    }


def _capacities(card: Card, split_count: int) -> Json:
    memory = f"{card.memory_mib}Mi"
    whole, slot = str(WHOLE), str(WHOLE // split_count)
    return {
        "memory": _shared(memory, default=memory, least="1Mi", step="1Mi"),
        "cores": _shared(whole, default=whole, least="0", step="1"),
        "slots": _shared(whole, default=slot, least=slot, step="1"),
    }


def _shared(value: str, *, default: str, least: str, step: str) -> Json:
    """Build a capacity that requests consume in steps, up to all of it."""
    if least == value:
        # One tenant a card: the API server refuses a range without room for a single step.
        return {"value": value, "requestPolicy": {"default": default, "validValues": [value]}}
    valid = {"min": least, "max": value, "step": step}
    return {"value": value, "requestPolicy": {"default": default, "validRange": valid}}
