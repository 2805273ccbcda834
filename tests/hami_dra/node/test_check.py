"""`hami-dra-node check` shows what a node would publish, and what is missing with its remedy."""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hami_dra.node import check
from hami_dra.node.__main__ import app
from hami_dra.node.backend import NoCards
from hami_dra.node.inventory import Card
from hami_dra.node.settings import Settings
from hami_dra.node.simulated import cards

REGISTRY = "plugins_registry"


@pytest.fixture
def kubelet() -> Iterator[Path]:
    """Return a kubelet's directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="hd-") as short:
        (Path(short) / REGISTRY).mkdir()
        yield Path(short)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", "--name", "n1", *arguments])
    return result.exit_code, result.output


def test_a_node_that_is_well_shows_its_cards(kubelet: Path) -> None:
    simulated = ("--devices", "simulated", "--profile", "l4-24g", "--count", "2")

    code, said = run(*simulated, "--kubelet-directory", str(kubelet))

    assert code == 0, said
    assert said.count("NVIDIA L4  23034Mi  cores 100  slots 100 (10 a tenant)") == 2
    assert said.endswith("all is well\n")
    assert list(kubelet.iterdir()) == [kubelet / REGISTRY], "nothing was changed"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("--kubelet-directory", "/no/such/directory"),
            "--kubelet-directory (its flag --root-dir)",
        ),
        (("--devices", "simulated", "--profile", "voodoo"), "expected one of: a100-80g"),
        (("--cdi-directory", "/opt/cdi"), "cdi_spec_dirs"),
        (("--driver", "x" * 100 + ".example.com"), "expected at most 107 for a socket"),
    ],
)
def test_what_is_missing_comes_with_its_remedy(arguments: tuple[str, ...], expected: str) -> None:
    code, said = run(*arguments)

    assert code == 3
    assert expected in said
    assert said.endswith("not ready\n")


def test_an_old_driver_is_named(kubelet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Old(NoCards):
        """Cards with an old driver."""

        def cards(self) -> Sequence[Card]:
            """Return them."""
            return [
                dataclasses.replace(card, driver_version="418.87.00")
                for card in cards("l4-24g", 1, "n1")
            ]

    monkeypatch.setattr(check, "choose_backend", lambda *_, **__: Old())

    found = check.findings(Settings(name="n1", kubelet_directory=kubelet))

    [problem] = found.problems
    assert "found NVIDIA's driver 418.87.00, expected 440 or newer" in problem.what


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--run-directory", "here"), "expected an absolute one"),
        (("--count", "65"), "count: Input should be less than or equal to 64"),
        (("--split-count", "0"), "split_count"),
    ],
)
def test_a_wrong_setting_is_named(arguments: tuple[str, ...], expected: str) -> None:
    code, said = run(*arguments)

    assert code == 2
    assert expected in " ".join(said.replace("│", " ").split())
