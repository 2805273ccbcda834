"""Facts as people, machines and tickets get them."""

import asyncio
import json
import sys
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hami_dra.cli import readiness
from hami_dra.cli.app import app
from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.preflight.fact import Fact, Status
from tests.hami_dra.kube.api_double import ApiDouble

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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ApiError(403, "Forbidden", "not you"), "the measurement was refused: "),
        (UnreachableError("no answer within 30 s"), "did not stand the measurement: no answer"),
        (TimeoutError(), "did not come within a minute"),
    ],
)
async def test_a_measurement_that_fails_leaves_all_other_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    """Where the API server is slow, they matter most."""

    async def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(readiness, "measure", fails)
    async with ApiDouble().serving() as api:
        config = api.write_kubeconfig(tmp_path / "kubeconfig")
        command = ["preflight", "--measure", "-o", "json", "--kubeconfig", str(config)]
        result = await asyncio.to_thread(CliRunner().invoke, app, command)

    found = {fact["id"]: fact for fact in json.loads(result.stdout)}
    assert len(found) > 10
    assert found["controller-manager-rate"]["status"] == "unknown"
    assert said in found["controller-manager-rate"]["found"]
