"""Claims as the API server has them after the scheduler allocated them, and a node to hold them."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hami_dra.migration import Json
from hami_dra.node.cdi import Mount, NodeEdits
from hami_dra.node.claims import Claims
from hami_dra.node.devices import device_name
from hami_dra.node.files import Files, Step, no_step
from hami_dra.node.host import Directories
from hami_dra.node.prepare import Node
from hami_dra.node.recovery import Recovery, begin
from hami_dra.node.simulated import cards
from hami_dra.node.strictness import USUAL, Strictness

DRIVER = "gpu.example.com"
NODE = "n1"
CARDS = cards("a100-80g", 3, NODE)
DEVICES = [device_name(card.uuid) for card in CARDS]
BOOT = "boot-1"


def nobody(_: str) -> None:
    """Tell that no other claim holds anything of a card."""


def result(
    device: int | str = 0,
    *,
    memory: str | None = "4Gi",
    cores: str | None = "30",
    slots: str | None = "10",
    request: str = "gpu",
    share: str | None = "",
    **more: object,
) -> Json:
    """Build an allocation result of one of the node's cards."""
    amounts = {"memory": memory, "cores": cores, "slots": slots}
    consumed = {name: text for name, text in amounts.items() if text is not None}
    identity = str(uuid.uuid4()) if share == "" else share
    return {
        "request": request,
        "driver": DRIVER,
        "pool": NODE,
        "device": DEVICES[device] if isinstance(device, int) else device,
        **({"shareID": identity} if identity is not None else {}),
        **({"consumedCapacity": consumed} if consumed else {}),
        **more,
    }


def claim(
    *results: Json, name: str = "c", uid: str | None = None, config: Sequence[Json] = ()
) -> Json:
    """Build an allocated claim."""
    devices: Json = {"results": list(results)}
    if config:
        devices["config"] = list(config)
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": uid or str(uuid.uuid4())},
        "status": {"allocation": {"devices": devices}},
    }


@dataclass
class FakeHost:
    """A node with simulated cards."""

    found: Node = field(
        default_factory=lambda: Node(NODE, DRIVER, {card.uuid: card for card in CARDS})
    )
    container: NodeEdits = field(default_factory=NodeEdits)
    digest: str = ""
    how: Strictness = USUAL

    def node(self) -> Node:
        """Return the cards."""
        return self.found

    def edits(self) -> NodeEdits:
        """Return what containers need."""
        return self.container

    def strictness(self) -> Strictness:
        """Return how strict the node is."""
        return self.how

    def library(self) -> str:
        """Return the digest of the library."""
        return self.digest

    def library_mounts(self, digest: str) -> Sequence[Mount]:
        """Mount nothing."""
        assert digest in {"", self.digest}
        return ()


@dataclass
class Disk:
    """The directories of one agent, and agents that start and die on them."""

    root: Path
    boot_id: str = BOOT
    host: FakeHost = field(default_factory=FakeHost)

    def __post_init__(self) -> None:
        for path in (self.state, self.directories.cdi, self.directories.claims):
            path.mkdir(parents=True, exist_ok=True)

    @property
    def state(self) -> Path:
        """Where the checkpoint is."""
        return self.root / "plugin"

    @property
    def lock(self) -> Path:
        """By which agents take turns."""
        return self.state / "claims.lock"

    @property
    def directories(self) -> Directories:
        """Where files of claims are."""
        return Directories(cdi=self.root / "cdi", claims=self.root / "claims")

    def start(self, step: Step = no_step) -> Claims:
        """Start an agent as it starts after a crash."""
        return self.recovered(step)[0]

    def recovered(self, step: Step = no_step) -> tuple[Claims, Recovery]:
        """Start an agent and tell what it found."""
        claims, recovery = self.begun(step)
        claims.remove_orphans()
        claims.restore()
        return claims, recovery

    def begun(self, step: Step = no_step) -> tuple[Claims, Recovery]:
        """Find out what is prepared, and change nothing yet."""
        return begin(self.state, self.directories, self.host, self.boot_id, files=Files(step))

    def names(self) -> set[str]:
        """Return every file of a claim that lies on the disk."""
        return {
            path.name
            for directory in (self.directories.cdi, self.directories.claims)
            for path in directory.iterdir()
        }
