"""Nodes that do not exist, with cards that do not exist, for a scheduler that does."""

from collections.abc import Mapping, Sequence
from typing import Final

from hami_dra.kube.session import Session
from hami_dra.kube.slices import publish
from hami_dra.lab.api import Api
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.node import simulated
from hami_dra.node.devices import resource_slice
from hami_dra.node.inventory import Card

SIMULATED: Final = {"hami-dra.io/simulated-node": "true"}
"""Label of nodes without a kubelet; the simulated kubelet attends to these alone."""

_ROOM: Final = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti"}
_NODES: Final = "/api/v1/nodes"


def add_node(api: Api, name: str, profiles: Mapping[str, int]) -> tuple[Card, ...]:
    """Add a ready node that publishes simulated cards; return the cards.

    Args:
        api: the cluster.
        name: of the node; its cards are the same every time.
        profiles: how many cards of which model, such as `{"l4-24g": 2}`.
    """
    cards = tuple(
        card
        for profile, count in profiles.items()
        for card in simulated.cards(profile, count, name)
    )
    api.run(lambda session: _add(session, name, cards))
    return cards


def remove_node(api: Api, name: str) -> None:
    """Remove a node; its slice goes with it."""
    api.delete("nodes", name)
    for found in api.list("resourceslices", query={"fieldSelector": f"spec.nodeName={name}"}):
        api.delete("resourceslices", found["metadata"]["name"])


async def _add(session: Session, name: str, cards: Sequence[Card]) -> None:
    node = await session.create(_NODES, _node(name))
    # The API server taints new nodes as not ready, and the controller that would take that back
    # needs a kubelet's heartbeats.
    await session.patch(f"{_NODES}/{name}", {"spec": {"taints": None}})
    uid = node["metadata"]["uid"]
    await publish(session, resource_slice(cards, node=name, node_uid=uid, driver=DRIVER))


def _node(name: str) -> Json:
    labels = {**SIMULATED, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
    ready = {"type": "Ready", "status": "True", "reason": "Simulated", "message": "no kubelet"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": _ROOM, "allocatable": _ROOM, "conditions": [ready]},
    }
