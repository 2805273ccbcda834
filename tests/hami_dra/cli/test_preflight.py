"""Facts as people, machines and tickets get them."""

import json
import sys
from io import StringIO

import pytest

from hami_dra.cli import readiness
from hami_dra.preflight.fact import Fact, Status

FACTS = [
    Fact("device-class", "a title", Status.PASS, "found it", "", ""),
    Fact("guard", "a title", Status.FAIL, "a|b `x` <i>\n\x1b[31mred", "one", "kubectl get x | y"),
    Fact("x", "a title", Status.UNKNOWN, "403", "a readable answer", "ask"),
]


class Terminal(StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_a_pipe_gets_plain_lines_with_what_to_do() -> None:
    assert readiness._as_table(FACTS).splitlines() == [  # noqa: SLF001 - the shell above it needs a cluster
        "pass      device-class   found it",
        "fail      guard          a|b `x` <i>  [31mred",
        "                         expected: one",
        "                         fix: kubectl get x | y",
        "unknown   x              403",
        "                         expected: a readable answer",
        "                         fix: ask",
    ]


def test_a_terminal_gets_colours_unless_its_user_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = readiness._as_table(FACTS)  # noqa: SLF001 - see above
    monkeypatch.setenv("NO_COLOR", "1")

    assert "\x1b[31m" in coloured
    assert coloured.count("\x1b[0m") == 3
    assert "\x1b" not in readiness._as_table(FACTS)  # noqa: SLF001 - see above


def test_markdown_is_a_table_that_no_text_can_break() -> None:
    rows = readiness._as_markdown(FACTS).splitlines()  # noqa: SLF001 - see above

    assert rows[3] == (
        "| fail | guard | a\\|b \\`x\\` &lt;i>  [31mred | one | `kubectl get x \\| y` |"
    )
    assert rows[2] == "| pass | device-class | found it |  |  |"


def test_json_has_every_field() -> None:
    [first, *_] = json.loads(readiness._as_json(FACTS))  # noqa: SLF001 - see above

    assert first == {
        "id": "device-class",
        "title": "a title",
        "status": "pass",
        "found": "found it",
        "expected": "",
        "fix": "",
    }
