"""A node to look at: claims made by the agent's own code, a kubelet on a socket, and cards."""

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hami_dra.migration import Json
from hami_dra.monitor import pods
from hami_dra.monitor.cards import CardReading, Cards, Listed
from hami_dra.monitor.look import Looker
from hami_dra.monitor.metrics import NodeCollector
from hami_dra.node import limit_files
from hami_dra.node.backend import SimulatedCards
from hami_dra.node.limits import Control, DriverUsage, decode_control
from tests.hami_dra.node.claims import DRIVER, NODE, Disk, claim

SECOND = 10**9
_HEADER = struct.Struct("<8sIIQII96x")
_SLOT = struct.Struct("<IIIIQQ96x")
_DEVICE = struct.Struct("<6Q4Q16x")
_SLOTS_AT = 128 + 32 * 128
_SLOT_BYTES = _SLOT.size + 32 * _DEVICE.size

Series = dict[frozenset[tuple[str, str]], float]
"""Values by labels."""


@dataclass
class FakeKubelet:
    """The PodResources service, as a kubelet has it."""

    pods: list[Json] = field(default_factory=list)
    calls: int = 0
    answer: bytes | None = None
    refusal: tuple[grpc.StatusCode, str] | None = None

    def hold(
        self, pod: str, containers: dict[str, Sequence[Json]], *, namespace: str = "team"
    ) -> None:
        """Have a pod; each container holds allocated claims."""
        described = [
            {"name": name, "dynamic_resources": [held(each) for each in claims]}
            for name, claims in containers.items()
        ]
        self.pods.append({"name": pod, "namespace": namespace, "containers": described})

    def list(self, _: object, context: "grpc.ServicerContext") -> bytes:
        """Answer as a kubelet does."""
        self.calls += 1
        if self.refusal is not None:
            context.abort(*self.refusal)
        return pods.encode(self.pods) if self.answer is None else self.answer


def held(allocated: Json, *, is_share_told: bool = True) -> Json:
    """Describe a claim as the kubelet lists it."""
    results = allocated["status"]["allocation"]["devices"]["results"]
    return {
        "claim_name": allocated["metadata"]["name"],
        "claim_namespace": allocated["metadata"]["namespace"],
        "claim_resources": [
            {
                "driver_name": each["driver"],
                "pool_name": each["pool"],
                "device_name": each["device"],
                **({"share_id": each["shareID"]} if is_share_told and "shareID" in each else {}),
            }
            for each in results
        ],
    }


@contextmanager
def listening(kubelet: FakeKubelet, socket: Path) -> Iterator[None]:
    """Serve PodResources on a socket."""
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        handler: grpc.RpcMethodHandler[bytes, bytes]
        handler = grpc.unary_unary_rpc_method_handler(kubelet.list)
        service, method = pods.LIST.strip("/").split("/")
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {method: handler})]
        )
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield
        finally:
            server.stop(None).wait()


class World:
    """One node.

    Attributes:
        disk: the agent's.
        agent: its claim machine.
        kubelet: tells who has which claim.
        socket: where it listens.
        looker: what is tested.
        now_ns: what the clock says.
    """

    def __init__(self, root: Path, socket: Path, cards: Cards | None = None) -> None:
        self.disk = Disk(root)
        self.agent = self.disk.start()
        self.kubelet = FakeKubelet()
        self.socket = socket
        self.now_ns = 100 * SECOND
        self.looker = Looker(
            NODE,
            cards or Listed(SimulatedCards("a100-80g", 3, NODE, root=root)),
            self.disk.directories.claims,
            lambda: pods.list_containers(socket, DRIVER),
            clock_ns=lambda: self.now_ns,
        )

    def claim(self, *results: Json, name: str = "c", uid: str | None = None) -> Json:
        """Have the agent prepare a claim."""
        made = claim(*results, name=name, uid=uid)
        self.agent.prepare(made)
        return made

    def pod(self, name: str, *results: Json) -> Json:
        """Have a pod with one container and one claim."""
        made = self.claim(*results, name=f"{name}-gpu")
        self.kubelet.hold(name, {"main": [made]})
        return made

    def scrape(self, *, legacy: bool = False) -> str:
        """Return what a scrape shows a little later."""
        self.now_ns += 2 * SECOND
        registry = CollectorRegistry()
        registry.register(NodeCollector(self.looker, legacy=legacy))
        return generate_latest(registry).decode()

    def series(self, name: str) -> Series:
        """Return the series of one metric."""
        return series(self.scrape(), name)

    def folder(self, allocated: Json) -> Path:
        """Return the directory with a claim's files."""
        return self.disk.directories.claim(allocated["metadata"]["uid"])

    def control(self, allocated: Json) -> Control:
        """Return a claim's limits."""
        return decode_control((self.folder(allocated) / "control").read_bytes())

    def measure(
        self, allocated: Json, *busy_ns: int, processes: dict[int, DriverUsage] | None = None
    ) -> None:
        """Write what the agent measured of a claim's cards, now."""
        before = self.control(allocated)
        devices = tuple(
            replace(device, busy_ns=busy)
            for device, busy in zip(before.devices, busy_ns, strict=True)
        )
        control = replace(
            before,
            devices=devices,
            processes=processes or {},
            measured_at_ns=self.now_ns,
        )
        limit_files.update(self.folder(allocated) / "control", control)

    def use(self, allocated: Json, slot: int = 0, *devices: Sequence[int], pid: int = 7) -> None:
        """Write into `usage` as the library does: one process, its numbers by card."""
        write_slot(self.folder(allocated) / "usage", slot, *devices, pid=pid)


def write_slot(usage: Path, slot: int, *devices: Sequence[int], pid: int, state: int = 1) -> None:
    """Write one process into a usage file: up to ten numbers for each card."""
    with usage.open("r+b") as file:
        file.write(_HEADER.pack(b"VGPUSAGE", 1, 1, 823424, 256, 0))
        file.seek(_SLOTS_AT + slot * _SLOT_BYTES)
        file.write(_SLOT.pack(2, state, pid, 0, 1000 + pid, 4026531836))
        for numbers in devices:
            file.write(_DEVICE.pack(*numbers, *[0] * (10 - len(numbers))))


def series(text: str, name: str) -> Series:
    """Pick the series of one metric out of a scrape."""
    return {
        frozenset(sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def by(found: Series, *labels: str) -> dict[Any, float]:
    """Key series by some of their labels; by one, without a tuple."""
    named = {tuple(dict(key)[label] for label in labels): value for key, value in found.items()}
    assert len(named) == len(found), "these labels do not tell the series apart"
    return {key[0] if len(key) == 1 else key: value for key, value in named.items()}


@dataclass
class FakeCards:
    """Cards that say what a test wants, or fail."""

    readings: list[CardReading]
    failure: Exception | None = None

    def read(self) -> Sequence[CardReading]:
        """Answer, or fail."""
        if self.failure is not None:
            raise self.failure
        return self.readings
