"""A snapshot as metrics: HAMi's, and beside them what HAMi does not export."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from hami_dra.monitor import hami
from hami_dra.monitor.look import Looker
from hami_dra.monitor.snapshot import Snapshot

_NS: Final = 10**9
_CONTAINER: Final = ("namespace", "pod", "container", "device_uuid")


class NodeCollector(Collector):
    """Looks at the node at every scrape.

    Args:
        looker: looks.
        legacy: whether HAMi's old names are shown too.
    """

    def __init__(self, looker: Looker, *, legacy: bool = False) -> None:
        self._looker = looker
        self._legacy = legacy

    def describe(self) -> Sequence[Metric]:
        """Describe nothing, so that registering looks at nothing."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all series of the moment."""
        snapshot = self._looker.look()
        yield from hami.families(snapshot, legacy=self._legacy)
        yield from _ours(snapshot)


def _ours(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield what HAMi does not export."""
    yield from _counted(snapshot)
    info = GaugeMetricFamily(
        "hami_dra_monitor_card_info",
        "1 for each card of the node; whether it is simulated.",
        labels=("node", "device_uuid", "device_index", "model", "simulated"),
    )
    for card in (each.card for each in snapshot.cards):
        labels = [snapshot.node, card.uuid, str(card.index), card.model]
        info.add_metric([*labels, str(card.is_simulated).lower()], 1)
    works = GaugeMetricFamily(
        "hami_dra_monitor_source_up",
        "1 where the last look got an answer: cards, claims, pod-resources.",
        labels=("source",),
    )
    for source, is_up in snapshot.works.items():
        works.add_metric([source], is_up)
    yield from (info, works)
    yield from _trouble(snapshot)
    gauges = (
        ("claims", "Claims that are prepared on the node.", snapshot.claims),
        (
            "unnamed_claims",
            "Prepared claims that no container has which the kubelet lists.",
            snapshot.unnamed,
        ),
        ("left_out_claims", "Claims beyond those that are looked at.", snapshot.left_out),
        (
            "measurement_age_seconds",
            "Age of the agent's newest measurement; absent where it never made one.",
            snapshot.measured_age_s,
        ),
    )
    for name, text, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(f"hami_dra_monitor_{name}", text, value=value)


def _counted(snapshot: Snapshot) -> Iterator[Metric]:
    refusals = CounterMetricFamily(
        "hami_dra_monitor_container_refusals",
        "Allocations that a limit refused, since the monitor began to look.",
        labels=_CONTAINER,
    )
    throttled = CounterMetricFamily(
        "hami_dra_monitor_container_throttled_seconds",
        "Time that launches were held back by a limit of compute, since the monitor began to look.",
        labels=_CONTAINER,
    )
    for each in snapshot.containers:
        if (counted := each.use.counted) is None:
            continue
        who = [each.container.namespace, each.container.pod, each.container.name, each.uuid]
        refusals.add_metric(who, counted.refusals)
        throttled.add_metric(who, counted.throttled_ns / _NS)
    yield from (refusals, throttled)


def _trouble(snapshot: Snapshot) -> Iterator[Metric]:
    errors = CounterMetricFamily(
        "hami_dra_monitor_errors",
        "Failed questions, by what was asked; device_uuid is empty where it was of no one card.",
        labels=("source", "device_uuid"),
    )
    for (source, uuid), count in sorted(snapshot.errors.items()):
        errors.add_metric([source, uuid], count)
    refused = CounterMetricFamily(
        "hami_dra_monitor_files_refused",
        "Files of claims that were not believed.",
        labels=("file",),
    )
    for file, count in sorted(snapshot.refused.items()):
        refused.add_metric([file], count)
    yield from (errors, refused)
