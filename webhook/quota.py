"""Quotas in the path of admission: a word in time for pods, and the last word for claims."""

from collections.abc import Awaitable, Iterator, Sequence
from typing import Final, Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from hami_dra.kube.quotas import ClusterQuotas
from hami_dra.migration import Notice, Policy, RejectedPod, Template
from hami_dra.migration.json import as_object
from hami_dra.quota import Asked, read_asked
from hami_dra.quota.amounts import total
from webhook.response import FORBIDDEN, Admitted, Refused, Response
from webhook.review import Request

_POD: Final = "pod"
_CLAIM: Final = "claim"


class Quotas(Protocol):
    """What admission needs to know of quotas."""

    def refusal(self, namespace: str, claims: Sequence[Template]) -> str:
        """Say why a pod's new claims do not fit; empty if they do, as far as is known."""
        ...

    def notices(self, namespace: str) -> tuple[Notice, ...]:
        """Say what of the namespace's quotas does not hold as it is written."""
        ...

    def judge(self, request: Request) -> Response | Awaitable[Response]:
        """Decide on a claim that is being created; anything else passes.

        Only a claim that takes of a quota has to wait until that is written down.
        """
        ...


class NoQuotas:
    """Quotas of a webhook without a cluster: there are none."""

    def refusal(self, _namespace: str, _claims: Sequence[Template]) -> str:
        """Let every pod pass."""
        return ""

    def notices(self, _namespace: str) -> tuple[Notice, ...]:
        """Have nothing to say."""
        return ()

    def judge(self, _request: Request) -> Response:
        """Let every claim pass."""
        return Admitted()


class HeldQuotas(Collector):
    """Quotas of a cluster, as admission asks for them and as `/metrics` shows them.

    Args:
        cluster: the quotas and claims.
        policy: names the resources and DeviceClasses that count.
    """

    def __init__(self, cluster: ClusterQuotas, policy: Policy) -> None:
        self._cluster = cluster
        self._policy = policy
        self._refusals = {_POD: 0, _CLAIM: 0}

    def refusal(self, namespace: str, claims: Sequence[Template]) -> str:
        """Say why a pod's new claims do not fit; the claims themselves have the last word."""
        if not self._cluster.of(namespace):
            return ""
        sizes = self._cluster.sizes()
        specs = (template.spec["spec"] for template in claims)
        asked = total(read_asked(spec, self._policy).amounts(sizes) for spec in specs)
        return self._counted(_POD, self._cluster.refusal(namespace, asked))

    def notices(self, namespace: str) -> tuple[Notice, ...]:
        """Say what of the namespace's quotas does not hold as it is written."""
        return tuple(notice for each in self._cluster.of(namespace) for notice in each.notices)

    def judge(self, request: Request) -> Response | Awaitable[Response]:
        """Decide on a claim; a dry run reserves nothing (ruling 26).

        Raises:
            ApiError: if the API server refuses the reservation.
            UnreachableError: if it does not answer.
        """
        if not request.creates_claim or not self._cluster.of(request.namespace):
            return Admitted()
        try:
            # The spec alone: what a claim was given is not for its author to say.
            claimed = read_asked(as_object(request.object.get("spec"), "spec"), self._policy)
            metadata = as_object(request.object.get("metadata"), "metadata")
        except RejectedPod as wrong:
            return Refused(str(wrong))
        # Without a UID of its own a claim is counted by that of the review, for a while twice.
        uid, name = metadata.get("uid") or request.uid, metadata.get("name") or ""
        amounts = claimed.amounts(self._cluster.sizes())
        asked = Asked(str(uid), str(name), amounts)
        if request.dry_run:
            return self._claim(self._cluster.refusal(request.namespace, amounts))
        return self._reserve(request.namespace, asked)

    async def _reserve(self, namespace: str, asked: Asked) -> Response:
        return self._claim(await self._cluster.reserve(namespace, asked))

    def _claim(self, refusal: str) -> Response:
        said = self._counted(_CLAIM, refusal)
        return Refused(said, FORBIDDEN) if said else Admitted()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield a pair of series for each key of each quota that there is now, and the refusals."""
        labels = ("namespace", "quota", "key")
        used = GaugeMetricFamily(
            "hami_dra_quota_used",
            "What the claims of a namespace take of a quota: MiB, percent of a card, or cards.",
            labels=labels,
        )
        hard = GaugeMetricFamily(
            "hami_dra_quota_hard", "What a quota allows, in the same unit.", labels=labels
        )
        for figure in self._cluster.figures():
            values = (figure.quota.namespace, figure.quota.name, figure.limit.key)
            hard.add_metric(values, figure.limit.hard)
            used.add_metric(values, float("nan") if figure.used is None else figure.used)
        yield from (used, hard)
        refusals = CounterMetricFamily(
            "hami_dra_quota_refusals", "What did not fit into a quota.", labels=("what",)
        )
        for what, count in self._refusals.items():
            refusals.add_metric((what,), count)
        yield refusals

    def _counted(self, what: str, refusal: str) -> str:
        if refusal:
            self._refusals[what] += 1
        return refusal
