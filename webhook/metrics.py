"""What the webhook counts. Each app has a registry of its own, so tests and replicas do not mix."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

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


class Metrics(Collector):
    """The metrics of one app.

    What every review counts is counted in plain numbers, by the event loop alone, and becomes
    series when somebody looks: the library's own counters take a lock at each step, together longer
    than the migration.

    Args:
        others: collectors that are shown too.

    Attributes:
        registry: what `/metrics` shows.
    """

    def __init__(self, others: Iterable[Collector] = ()) -> None:
        # Series that exist from the start let alerts see the first failure as an increase.
        self._reviews = dict.fromkeys(Decision, 0)
        self._templates = dict.fromkeys(Outcome, 0)
        self._within = [0] * (len(_BUCKETS_S) + 1)
        self._seconds = 0.0
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        for collector in (self, *others):
            self.registry.register(collector)

    def count(self, decision: Decision, seconds: float, outcomes: Iterable[Outcome] = ()) -> None:
        """Count a review.

        Args:
            decision: what became of it.
            seconds: from receiving it to answering it.
            outcomes: what it took to have each template that it needed.
        """
        self._reviews[decision] += 1
        self._within[bisect_left(_BUCKETS_S, seconds)] += 1
        self._seconds += seconds
        for outcome in outcomes:
            self._templates[outcome] += 1

    def collect(self) -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
        """Yield the reviews by decision and by time, and the templates that they needed."""
        reviews = CounterMetricFamily(
            "hami_dra_webhook_reviews", "Admission reviews by decision.", labels=["decision"]
        )
        for decision, count in self._reviews.items():
            reviews.add_metric([decision], count)
        yield reviews
        bounds = (*map(floatToGoString, _BUCKETS_S), "+Inf")
        yield HistogramMetricFamily(
            "hami_dra_webhook_review_seconds",
            "Time from receiving a review to answering it.",
            buckets=list(zip(bounds, accumulate(self._within), strict=True)),
            sum_value=self._seconds,
        )
        templates = CounterMetricFamily(
            "hami_dra_webhook_templates",
            "ResourceClaimTemplates that pods needed, by what it took to have them.",
            labels=["outcome"],
        )
        for outcome, count in self._templates.items():
            templates.add_metric([outcome], count)
        yield templates


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
