"""`hami-dra-node check` shows what a node would publish, and what is missing with its remedy."""

import contextlib
import dataclasses
import io
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hami_dra.node import check, settings
from hami_dra.node.__main__ import command
from hami_dra.node.backend import BackendError, FindEdits, NoCards
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.inventory import Card
from hami_dra.node.settings import CdiMode, Settings
from hami_dra.node.simulated import cards
from hami_dra.variables import SettingsError

REGISTRY = "plugins_registry"


@pytest.fixture
def kubelet() -> Iterator[Path]:
    """Return a kubelet's directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="hd-") as short:
        (Path(short) / REGISTRY).mkdir()
        yield Path(short)


def run(*arguments: str) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command(["check", "--name", "n1", *arguments])
    return code, said.getvalue()


def test_a_node_that_is_well_shows_its_cards(kubelet: Path) -> None:
    simulated = ("--devices", "simulated", "--profile", "l4-24g", "--count", "2")

    code, said = run(*simulated, "--kubelet-directory", str(kubelet))

    assert code == 0, said
    assert said.count("NVIDIA L4  23034Mi  cores 100  slots 100 (10 a tenant)") == 2
    assert "native library: none, so limits are told and not enforced" in said
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
        (("--library", "/no/such/library"), "HAMI_DRA_NODE_LIBRARY set to nothing"),
        (("--driver", "x" * 100 + ".example.com"), "expected at most 107 for a socket"),
    ],
)
def test_what_is_missing_comes_with_its_remedy(arguments: tuple[str, ...], expected: str) -> None:
    code, said = run(*arguments)

    assert code == 3
    assert expected in said
    assert said.endswith("not ready\n")


def test_who_may_not_look_is_told_so(kubelet: Path) -> None:
    kubelet.chmod(0)
    with as_nobody():
        code, said = run("--devices", "simulated", "--kubelet-directory", str(kubelet))
    kubelet.chmod(0o700)

    assert code == 3
    assert f"found no right to look at {kubelet / REGISTRY}" in said
    assert f"not writable, expected a place for plugins at {kubelet}" in said


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Give up the rights of root, if we have them."""
    if os.geteuid():
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


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
    ("works", "expected"),
    [
        ({"toolkit", "spec", "own"}, "container edits: toolkit (auto)"),
        ({"spec", "own"}, "container edits: spec (auto)"),
        ({"own"}, "container edits: own (auto)"),
        (set[str](), "problem: this way does not work"),
    ],
)
def test_which_way_to_find_what_containers_need_is_told(
    kubelet: Path, monkeypatch: pytest.MonkeyPatch, works: set[str], expected: str
) -> None:
    class Real(NoCards):
        """Real cards."""

        name = "nvml"

    def way(mode: CdiMode) -> FindEdits:
        """Find it, or not."""

        def find(_: Sequence[Card]) -> NodeEdits:
            if mode.value not in works:
                raise BackendError("this way does not work")
            return NodeEdits()

        return find

    ways = {mode: way(mode) for mode in (CdiMode.TOOLKIT, CdiMode.SPEC, CdiMode.OWN)}
    monkeypatch.setattr(check, "choose_backend", lambda *_, **__: Real())
    monkeypatch.setattr(check, "ways_to_find", lambda _: ways)

    said = check.render(check.findings(Settings(name="n1", kubelet_directory=kubelet)))

    assert expected in said.splitlines()


def test_a_driver_that_hangs_is_told(kubelet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()

    class Hanging(NoCards):
        """Cards that nobody hears of."""

        def cards(self) -> Sequence[Card]:
            """Wait for the driver."""
            answers.wait()
            return ()

    monkeypatch.setattr(check, "choose_backend", lambda *_, **__: Hanging())
    monkeypatch.setattr(check, "HANGS_S", 0.1)

    found = check.findings(Settings(name="n1", kubelet_directory=kubelet))
    answers.set()

    [problem] = found.problems
    assert problem.what == "the driver hangs: no answer within 0.1 s"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--run-directory", "here"), "expected an absolute path"),
        (("--count", "65"), "count: found '65', expected a number from 0 to 64"),
        (("--count", "\u0662"), "expected a number"),
        (("--split-count", "0"), "split_count: found '0', expected a number from 1 to 100"),
        (("--devices", "cards"), "expected one of auto, nvml, simulated"),
        (("--name", ""), "name: found '', expected 1 to 253 characters"),
    ],
)
def test_a_wrong_setting_is_named(arguments: tuple[str, ...], expected: str) -> None:
    code, said = run(*arguments)

    assert code == 2
    assert expected in said


def test_help_says_what_holds_when_nothing_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(["run", "--help"])

    said = " ".join(capsys.readouterr().out.split())
    for name, default in {
        "SPLIT_COUNT": "10",
        "CORE_POLICY": "default",
        "ALLOW_DISABLE": "true",
        "CDI_MODE": "auto",
        "RUN_DIRECTORY": "/run/hami-dra",
        "PORT": "8080",
    }.items():
        assert f"[default: {default}] [env: HAMI_DRA_NODE_{name}]" in said
    assert "[default: ]" not in said
    assert "None" not in said


def test_flags_win_over_the_environment_and_empty_variables_count_as_unset() -> None:
    environ = {
        "HAMI_DRA_NODE_NAME": "n1",
        "HAMI_DRA_NODE_COUNT": "3",
        "HAMI_DRA_NODE_PORT": "",
        "HAMI_DRA_NODE_LIBRARY": "/opt/libvgpu.so",
    }

    found = settings.read(environ, {"count": "4"})

    assert found == Settings(name="n1", count=4, library=Path("/opt/libvgpu.so"))
    with pytest.raises(SettingsError, match="expected --name or HAMI_DRA_NODE_NAME"):
        settings.read({}, {})
