"""A real node beside a real control plane, with the webhook and the agent at work.

Without root there is no real node: these tests are left out then, which the run's header says.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hami_dra.lab.realnode import why_not
from hami_dra.lab.wait import until
from tests.node.bed import Bed, a_bare_bed, at_work

LOGS = Path(__file__).parents[2] / ".pytest_cache" / "node-logs"
_HERE = Path(__file__).parent


def pytest_report_header() -> str | None:
    """Say once what is left out."""
    reason = why_not()
    return f"tests/node is left out: {reason}" if reason else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a real node where there cannot be one."""
    if why_not() is None:
        return
    left_out = [item for item in items if _HERE in item.path.parents]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def bare_bed(request: pytest.FixtureRequest, kube_version: str | None) -> Iterator[Bed]:
    """A cluster with one real node and nothing of ours; its logs stay after a failure."""
    with a_bare_bed(kube_version) as bed:
        try:
            yield bed
        finally:
            if request.session.testsfailed:
                bed.cluster.collect_logs(LOGS)


@pytest.fixture(scope="module")
def shared_bed(bare_bed: Bed) -> Iterator[Bed]:
    """The bed with the webhook and the agent at work."""
    with at_work(bare_bed):
        yield bare_bed


@pytest.fixture
def bed(shared_bed: Bed) -> Iterator[Bed]:
    """The bed without pods; after the test nothing of its pods may be left."""
    yield shared_bed
    shared_bed.delete_pods()
    until(lambda: not shared_bed.files(), what="no file of a claim is left")
