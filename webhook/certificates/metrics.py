"""What Prometheus shows of the serving certificate."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook.certificate import Certificate


class CertificateCollector(Collector):
    """Reads a certificate's state whenever it is asked, so that nothing needs to push it."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the end of the served certificate, if there is one, and the failures."""
        end = GaugeMetricFamily(
            "hami_dra_webhook_certificate_not_after_seconds",
            "When the served certificate ends, in seconds since 1970.",
        )
        if self._certificate.not_after is not None:
            end.add_metric([], self._certificate.not_after.timestamp())
        yield end
        yield CounterMetricFamily(
            "hami_dra_webhook_certificate_reload_failures",
            "How often a new certificate could not be had; the one before stayed.",
            value=self._certificate.failures,
        )
