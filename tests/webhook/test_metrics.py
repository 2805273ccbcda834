"""What Prometheus sees of templates: every path that one can take is a series from the start."""

from prometheus_client import CollectorRegistry, generate_latest

from hami_dra.kube.removal import Effect
from hami_dra.kube.session import Session
from hami_dra.kube.sweeper import Sweeper
from hami_dra.kube.templates import ClusterTemplates, Failure, Outcome
from tests.hami_dra.conftest import api, session
from tests.hami_dra.kube.api_double import TEMPLATES, ApiDouble
from webhook.metrics import Metrics, TemplateCollector

__all__ = ["api", "session"]


def shown(collector: TemplateCollector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


async def test_every_path_of_a_template_is_a_series(session: Session) -> None:
    collector = TemplateCollector(ClusterTemplates(session), Sweeper(session))

    text = shown(collector) + generate_latest(Metrics().registry).decode()

    for outcome in Outcome:
        assert f'hami_dra_webhook_templates_total{{outcome="{outcome}"}} 0.0' in text
    for reason in Failure:
        assert f'hami_dra_webhook_template_failures_total{{reason="{reason}"}} 0.0' in text
    for effect in Effect:
        assert f'hami_dra_webhook_template_sweeps_total{{effect="{effect}"}} 0.0' in text


async def test_a_pass_of_the_sweeper_shows(session: Session, api: ApiDouble) -> None:
    sweeper = Sweeper(session, pause_s=0)
    collector = TemplateCollector(ClusterTemplates(session), sweeper)
    api.fail(f"GET {TEMPLATES}", 500)

    await sweeper.sweep()
    failed = shown(collector)
    await sweeper.sweep()

    assert 'sweeps_total{effect="failed"} 1.0' in failed
    assert "sweep_finished_seconds 1" not in failed
    assert "sweep_finished_seconds 1" in shown(collector)
