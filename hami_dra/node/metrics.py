"""What the agent counts and shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from time import perf_counter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_BUCKETS_S: Final = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 45.0),
)


class Outcome(StrEnum):
    """How a call for one claim ended."""

    DONE = "done"
    REPEATED = "repeated"
    FAILED = "failed"


@dataclass(slots=True)
class Call:
    """A call in progress, which says at its end how it went."""

    outcome: Outcome = Outcome.DONE


class Metrics:
    """The metrics of one agent.

    Attributes:
        registry: what `/metrics` shows.
        registered: 1 while the kubelet accepts the plugin.
        published: devices in the slice that the API server has.
        claims: prepared claims.
        unhealthy: cards that are not healthy.
        troubles: what needs a person, by kind; 1 while it lasts.
        writes: slices written, by what was done.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._calls = Counter(
            "hami_dra_node_claim_calls",
            "Prepare and unprepare calls of the kubelet, one for each claim.",
            ["method", "outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "hami_dra_node_claim_call_seconds",
            "Time to prepare or unprepare one claim.",
            ["method"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._running = Gauge(
            "hami_dra_node_claim_calls_running",
            "Calls in progress, one for each claim.",
            ["method"],
            registry=self.registry,
        )
        self.registered = self._gauge("registered", "1 while the kubelet accepts the plugin.")
        self.published = self._gauge("published_devices", "Devices in the published slice.")
        self.claims = self._gauge("claims", "Claims that are prepared or being prepared.")
        self.unhealthy = self._gauge("unhealthy_cards", "Cards that are not healthy.")
        self.troubles = Gauge(
            "hami_dra_node_trouble",
            "1 while something needs a person.",
            ["kind"],
            registry=self.registry,
        )
        self.writes = Counter(
            "hami_dra_node_slice_writes",
            "Writes of ResourceSlices, by what was done.",
            ["verb"],
            registry=self.registry,
        )
        # Series that exist from the start let alerts see the first failure as an increase.
        self._ends = {
            (method, outcome): self._calls.labels(method, outcome)
            for method in ("prepare", "unprepare")
            for outcome in Outcome
        }

    @contextmanager
    def call(self, method: str) -> Iterator[Call]:
        """Count a call and its time."""
        call, started = Call(), perf_counter()
        with self._running.labels(method).track_inprogress():
            try:
                yield call
            except BaseException:
                call.outcome = Outcome.FAILED
                raise
            finally:
                self._ends[method, call.outcome].inc()
                self._seconds.labels(method).observe(perf_counter() - started)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"hami_dra_node_{name}", text, registry=self.registry)
