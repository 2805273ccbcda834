"""Options and fixtures of the whole suite."""

import pytest
from hypothesis import settings

# Timing says nothing on a shared machine, and the suite runs on every change.
settings.register_profile("default", deadline=None, max_examples=60)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update", action="store_true", help="rewrite the golden files in tests/cases"
    )
