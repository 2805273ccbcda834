"""What HAMi exports too, under its names, with its labels and units.

HAMi puts `zone="vGPU"` on every series of its monitor and of its scheduler, calls a percentage from
0 to 100 a ratio, and puts `NVIDIA-` before the names of cards: always in its monitor, and where it
is missing in its scheduler (ruling 45: dashboards keep working).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from hami_dra.monitor.snapshot import CardUse, ContainerUse, Snapshot

_MIB: Final = 2**20
_WHOLE: Final = 100
_ZONE: Final = "vGPU"
_PREFIX: Final = "NVIDIA"

_HOST: Final = ("node", "device_index", "device_uuid", "device_type")
_CARD: Final = ("node", "device_uuid", "device_index", "device_type")
_CONTAINER: Final = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
_ALLOCATED: Final = ("namespace", "node", "pod", "container_index", "device_uuid")

_Of: TypeAlias = Callable[[CardUse], float | None]

# Names before HAMi v2.10 by those since, and the names of labels that changed with them.
_OLD_NAMES: Final = {
    "hami_host_gpu_memory_used_bytes": "HostGPUMemoryUsage",
    "hami_host_gpu_utilization_ratio": "HostCoreUtilization",
    "hami_vgpu_memory_used_bytes": "vGPU_device_memory_usage_in_bytes",
    "hami_vgpu_memory_limit_bytes": "vGPU_device_memory_limit_in_bytes",
    "hami_container_device_utilization_ratio": "Device_utilization_desc_of_container",
    "hami_gpu_memory_limit_bytes": "GPUDeviceMemoryLimit",
    "hami_gpu_core_limit_ratio": "GPUDeviceCoreLimit",
    "hami_gpu_memory_allocated_bytes": "GPUDeviceMemoryAllocated",
    "hami_gpu_shared_count": "GPUDeviceSharedNum",
    "hami_gpu_core_allocated_ratio": "GPUDeviceCoreAllocated",
    "hami_node_gpu_overview": "nodeGPUOverview",
    "hami_node_gpu_memory_allocated_ratio": "nodeGPUMemoryPercentage",
    "hami_vgpu_memory_allocated_bytes": "vGPUMemoryAllocated",
    "hami_vgpu_core_allocated_ratio": "vGPUCoreAllocated",
}
_OLD_LABELS: Final = {
    "node": "nodeid",
    "device_index": "deviceidx",
    "device_uuid": "deviceuuid",
    "device_type": "devicetype",
    "device_cores": "devicecores",
    "device_memory_limit": "devicememorylimit",
    "namespace": "podnamespace",
    "pod": "podname",
    "container": "ctrname",
    "vdevice_index": "vdeviceid",
    "container_index": "containeridx",
}
_OLD_NODE_OF_CONTAINERS: Final = "nodename"


def families(snapshot: Snapshot, *, legacy: bool) -> Iterator[Metric]:
    """Yield HAMi's metrics.

    Args:
        snapshot: what they tell of.
        legacy: whether those from before v2.10 are among them.
    """
    for family in _families(snapshot):
        yield family
        if legacy and family.name in _OLD_NAMES:
            yield _old(family)


def _families(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    yield from _host(snapshot)
    yield from _cards(snapshot)
    yield from _containers(snapshot)


class _Gauge:
    """One of HAMi's gauges while it is filled."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self.family = GaugeMetricFamily(name, text, labels=(*labels, "zone"))

    def add(self, value: float | None, *labels: str) -> None:
        """Add a series; none for what is not known."""
        if value is not None:
            self.family.add_metric([*labels, _ZONE], value)


def _host(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    """Yield what cards say of themselves."""
    used = _Gauge(
        "hami_host_gpu_memory_used_bytes", "Memory of the card that is in use, by whomever.", _HOST
    )
    busy = _Gauge(
        "hami_host_gpu_utilization_ratio",
        "Part of the last moments in which kernels ran on the card (0-100).",
        _HOST,
    )
    memory = _Gauge(
        "hami_host_gpu_memory_controller_utilization_ratio",
        "Part of the last moments in which the card's memory was read or written (0-100).",
        _HOST[1:],
    )
    for card in (each.card for each in snapshot.cards):
        labels = str(card.index), card.uuid, f"{_PREFIX}-{card.model}"
        used.add(card.used_bytes, snapshot.node, *labels)
        busy.add(card.busy_percent, snapshot.node, *labels)
        memory.add(card.memory_busy_percent, *labels)
    yield from (each.family for each in (used, busy, memory))


def _cards(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    """Yield what there is of each card and what is given away."""
    gauges: tuple[tuple[str, str, _Of], ...] = (
        ("hami_gpu_memory_limit_bytes", "Memory of the card that can be given away.", _memory),
        ("hami_gpu_core_limit_ratio", "Compute of the card, in percent of it.", lambda _: _WHOLE),
        (
            "hami_gpu_shared_count",
            "Shares that claims hold of the card.",
            lambda use: use.given.shares if use.given else None,
        ),
        (
            "hami_gpu_core_allocated_ratio",
            "Compute of the card that claims hold (0-100); 0 of those without a limit.",
            lambda use: use.given.allocated.cores if use.given else None,
        ),
    )
    for name, text, value in gauges:
        gauge = _Gauge(name, text, _CARD)
        for use in _shared_out(snapshot):
            gauge.add(value(use), *_card_labels(snapshot, use))
        yield gauge.family
    yield from _allocated(snapshot)


def _shared_out(snapshot: Snapshot) -> Iterator[CardUse]:
    """Yield the cards of which something can be, or is, given away."""
    for use in snapshot.cards:
        if not use.card.is_partitioned or (use.given and use.given.shares):
            yield use


def _allocated(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    """Yield the memory that claims hold of each card, in the three ways in which HAMi says it."""
    text = "Memory of the card that claims hold."
    allocated = _Gauge(
        "hami_gpu_memory_allocated_bytes", text, (*_CARD[:3], "device_cores", _CARD[3])
    )
    overview = _Gauge(
        "hami_node_gpu_overview",
        text,
        (*_CARD[:3], "device_cores", "device_memory_limit", _CARD[3]),
    )
    part = _Gauge(
        "hami_node_gpu_memory_allocated_ratio",
        "Part of the card's memory that claims hold (0-1).",
        _CARD[:3],
    )
    for use in _shared_out(snapshot):
        if use.given is None:
            continue
        *labels, model = _card_labels(snapshot, use)
        held = use.given.allocated.memory_mib * _MIB
        allocated.add(held, *labels, str(_WHOLE), model)
        if (memory := _memory(use)) is not None:
            overview.add(held, *labels, str(_WHOLE), str(memory // _MIB), model)
            part.add(held / memory if memory else None, *labels)
    yield from (each.family for each in (allocated, overview, part))


def _memory(use: CardUse) -> int | None:
    """Return the memory of a card in whole mebibytes, which is what is shared out."""
    memory = use.card.memory_bytes
    return None if memory is None else memory // _MIB * _MIB


def _card_labels(snapshot: Snapshot, use: CardUse) -> tuple[str, str, str, str]:
    model = use.card.model
    registered = model if model.startswith(_PREFIX) else f"{_PREFIX}-{model}"
    return snapshot.node, use.card.uuid, str(use.card.index), registered


def _limit(each: ContainerUse) -> int:
    limit = each.use.limit_bytes
    return each.allocated.memory_mib * _MIB if limit is None else limit


_Value: TypeAlias = Callable[[ContainerUse], float | None]

_OF_CONTAINERS: Final[tuple[tuple[str, str, _Value], ...]] = (
    (
        "hami_vgpu_memory_used_bytes",
        "Memory of the card that the container's claims use.",
        lambda each: each.use.held.total_bytes if each.use.held else None,
    ),
    (
        "hami_vgpu_memory_limit_bytes",
        "Memory of the card up to which the container's claims may use it.",
        _limit,
    ),
    (
        "hami_container_device_memory_bytes",
        "The same as hami_vgpu_memory_used_bytes.",
        lambda each: each.use.held.total_bytes if each.use.held else None,
    ),
    (
        "hami_vgpu_memory_context_bytes",
        "Of the memory in use, contexts, modules and all else that only the driver sees.",
        lambda each: each.use.held.context_bytes if each.use.held else None,
    ),
    (
        "hami_vgpu_memory_buffer_bytes",
        "Of the memory in use, what programs asked for.",
        lambda each: each.use.held.buffer_bytes if each.use.held else None,
    ),
    (
        "hami_container_device_utilization_ratio",
        "Time of the card that the container's claims took since the last look (0-100).",
        lambda each: each.use.percent,
    ),
)


def _containers(snapshot: Snapshot) -> Iterator[GaugeMetricFamily]:
    for name, text, value in _OF_CONTAINERS:
        gauge = _Gauge(name, text, _CONTAINER)
        for each in snapshot.containers:
            gauge.add(value(each), *_container_labels(each))
        yield gauge.family
    memory = _Gauge(
        "hami_vgpu_memory_allocated_bytes",
        "Memory of the card that the container's claims hold.",
        _ALLOCATED,
    )
    cores = _Gauge(
        "hami_vgpu_core_allocated_ratio",
        "Compute of the card that the container's claims hold (0-100); 0 is without a limit.",
        _ALLOCATED,
    )
    for each in snapshot.containers:
        who = each.container
        labels = who.namespace, snapshot.node, who.pod, str(who.index), each.uuid
        memory.add(each.allocated.memory_mib * _MIB, *labels)
        cores.add(min(each.allocated.cores, _WHOLE), *labels)
    yield from (memory.family, cores.family)


def _container_labels(each: ContainerUse) -> tuple[str, str, str, str, str]:
    who = each.container
    return who.namespace, who.pod, who.name, str(each.vdevice), each.uuid


def _old(family: GaugeMetricFamily) -> Metric:
    """Return a family as HAMi called it before v2.10."""
    name = _OLD_NAMES[family.name]
    old = Metric(name, family.documentation, family.type)
    names = dict(_OLD_LABELS)
    if family.name.startswith("hami_vgpu_") and "allocated" in family.name:
        names["node"] = _OLD_NODE_OF_CONTAINERS
    for sample in family.samples:
        labels = {names.get(label, label): value for label, value in sample.labels.items()}
        old.add_sample(name, labels, sample.value)
    return old
