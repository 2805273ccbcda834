"""What the documentation shows of the CLI is what it prints; `make screens` writes it anew."""

from pathlib import Path

import pytest

from tests.screens import PAGES, shown

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", PAGES)
def test_screens_are_current(page: str) -> None:
    text = (ROOT / page).read_text()

    assert shown(text) == text, f"run make screens: {page} shows what the CLI no longer prints"
