"""Options and fixtures of the whole suite."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Timing says nothing on a shared machine, and the suite runs on every change.
settings.register_profile("default", deadline=None, max_examples=60)
# What is true of a commit once must be so again; looking for what nobody thought of is another job.
settings.register_profile("same", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("search", settings.get_profile("default"), max_examples=1000)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite the golden files in tests/cases"
    )
    parser.addoption(
        "--kube-version",
        metavar="VERSION",
        help="version of Kubernetes for the tests marked `cluster`; default: the lab's",
    )
    parser.addoption(
        "--all-placements",
        action="store_true",
        help="play every recorded placement, not only one in seven (takes minutes)",
    )
    parser.addoption(
        "--fuzz-runs",
        metavar="N",
        type=int,
        help="inputs for each reader of the native library (make native-fuzz); default: some",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Servers are frozen and killed under their clients there, which leaves some connections no
    # time to close; in which test the collector finds those is chance. Elsewhere it is an error.
    chance = pytest.mark.filterwarnings("ignore:unclosed (transport|<socket):ResourceWarning")
    # The first test of a module starts a cluster too, and a slow machine may take its time for all.
    patience = pytest.mark.timeout(900)
    for item in items:
        if item.get_closest_marker("cluster"):
            item.add_marker(chance)
            if not item.get_closest_marker("timeout"):
                item.add_marker(patience)


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Take back what a command under test made of the process's logging.

    Commands configure it for their process, which here is that of all tests: their handler holds
    the stream of one test, and would write to it in the next.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def kube_version(request: pytest.FixtureRequest) -> str | None:
    """Return the version of Kubernetes that the run is about; None means the lab's default."""
    version: str | None = request.config.getoption("--kube-version")
    return version
