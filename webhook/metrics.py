"""What the webhook counts. Each app has a registry of its own, so tests and replicas do not mix."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from hami_dra.kube.owner_events import OwnerEvents
from hami_dra.kube.removal import Effect
from hami_dra.kube.sweeper import Sweeper
from hami_dra.kube.templates import ClusterTemplates, Failure, Outcome
from webhook.response import Decision

# The API server's own histogram starts at 5 ms, where nearly all of our reviews have long ended.
_BUCKETS_S: Final = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)


class Metrics:
    """The metrics of one app.

    Args:
        others: collectors that are shown too.

    Attributes:
        registry: what `/metrics` shows.
        reviews: admission reviews by decision.
        seconds: time from the first byte of a review to its answer.
        templates: templates that admitted pods needed, by what it took to have them.
        decided: the series of `reviews`.
        ensured: the series of `templates`.
    """

    def __init__(self, others: Iterable[Collector] = ()) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        for other in others:
            self.registry.register(other)
        self.reviews = Counter(
            "hami_dra_webhook_reviews",
            "Admission reviews by decision.",
            ["decision"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "hami_dra_webhook_review_seconds",
            "Time from receiving a review to answering it.",
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.templates = Counter(
            "hami_dra_webhook_templates",
            "ResourceClaimTemplates that pods needed, by what it took to have them.",
            ["outcome"],
            registry=self.registry,
        )
        # Series that exist from the start let alerts see the first failure as an increase, and a
        # review need not look them up by their labels.
        self.decided = {decision: self.reviews.labels(decision) for decision in Decision}
        self.ensured = {outcome: self.templates.labels(outcome) for outcome in Outcome}


class EventsCollector(Collector):
    """Shows how many notices were told to the owners of pods."""

    def __init__(self, events: OwnerEvents) -> None:
        self._events = events

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the one counter, by what became of the event."""
        family = CounterMetricFamily(
            "hami_dra_webhook_events", "Events about migrations, by outcome.", labels=["outcome"]
        )
        family.add_metric(["written"], self._events.written)
        family.add_metric(["dropped"], self._events.dropped)
        yield family


class TemplateCollector(Collector):
    """Reads what became of a cluster's templates whenever it is asked.

    Args:
        templates: counts what reviews could not have.
        sweeper: counts what it did to those that nobody needs.
    """

    def __init__(self, templates: ClusterTemplates, sweeper: Sweeper) -> None:
        self._templates = templates
        self._sweeper = sweeper

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yield the failures, the sweeper's effects, and when it last got through."""
        failures = CounterMetricFamily(
            "hami_dra_webhook_template_failures",
            "Templates that pods needed and did not get, by reason.",
            labels=["reason"],
        )
        for reason in Failure:
            failures.add_metric([reason], self._templates.failures[reason])
        yield failures
        effects = CounterMetricFamily(
            "hami_dra_webhook_template_sweeps",
            "What the sweeper did to templates, by effect.",
            labels=["effect"],
        )
        for effect in Effect:
            effects.add_metric([effect], self._sweeper.effects[effect])
        yield effects
        finished = GaugeMetricFamily(
            "hami_dra_webhook_template_sweep_finished_seconds",
            "When the sweeper last looked at every template, in seconds since 1970.",
        )
        if self._sweeper.finished is not None:
            finished.add_metric([], self._sweeper.finished.timestamp())
        yield finished
