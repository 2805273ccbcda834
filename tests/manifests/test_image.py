"""The image's Dockerfile is sound, and its steps work; no Docker is needed for either."""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.manifests import ROOT

DOCKERFILE = ROOT / "manifests" / "image" / "Dockerfile"
IGNORED = DOCKERFILE.with_name("Dockerfile.dockerignore")

Step = tuple[str, str]


def steps() -> Iterator[Step]:
    """Yield each instruction and its text, in order."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line:
            instruction, _, text = line.partition(" ")
            yield instruction, text


def build_steps() -> list[Step]:
    """Return the instructions of the stage that builds."""
    every = list(steps())
    first, second = (number for number, (name, _) in enumerate(every) if name == "FROM")
    return every[first + 1 : second]


def copied() -> list[str]:
    """Name what comes from the checkout."""
    return [
        source for name, text in build_steps() if name == "COPY" for source in text.split()[:-1]
    ]


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")

    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_nothing_runs_as_root_and_a_kubelet_can_see_it() -> None:
    [user] = [text for name, text in steps() if name == "USER"]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


def test_only_what_is_built_from_reaches_the_builder() -> None:
    first, *others = [
        line for line in IGNORED.read_text().splitlines() if line and not line.startswith("#")
    ]

    assert first == "*"
    assert {line.removeprefix("!") for line in others if line[0] == "!"} == set(copied())


def test_everything_installed_is_pinned_by_hash() -> None:
    for name in ("run", "build"):
        text = (ROOT / ".ci" / "requirements" / f"{name}.txt").read_text()
        pins = re.findall(r"^[\w.-]+==[^ ]+(?: ;.*?)? \\$", text, re.MULTILINE)
        assert len(pins) == len(re.findall(r"^\S", text, re.MULTILINE))
    installs = re.findall(r"pip install (.*?)(?: &&|$)", "\n".join(t for _, t in build_steps()))
    assert installs
    for arguments in installs:
        assert "--no-deps" in arguments
        assert "--require-hashes" in arguments or arguments.endswith("dist/*.whl")


def test_the_image_holds_the_versions_that_are_tested() -> None:
    """`make image-requirements` brings them together again."""
    folder = ROOT / ".ci" / "requirements"
    tested, held = (
        dict(re.findall(r"^([\w.-]+)==([^ ]+)", (folder / name).read_text(), re.MULTILINE))
        for name in ("dev.txt", "run.txt")
    )

    assert held
    assert held.items() <= tested.items()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the steps of the building stage, with folders of ours for the image's; return /venv."""
    base, source, target = (tmp_path_factory.mktemp(name) for name in ("base", "src", "venv"))
    venv.create(base)
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{base / 'bin'}:{tools}:{os.environ['PATH']}"}
    for name, text in build_steps():
        if name == "COPY":
            copy(text.split(), source)
        if name == "RUN":
            done = subprocess.run(
                ["/bin/bash", "-euc", here(text, target)],
                cwd=source,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return target


def here(text: str, target: Path) -> str:
    """Return a step as it runs here: in another folder, by the faster installer and its cache."""
    text = re.sub(r"(\S*python) -m pip (\w+)", r"uv pip \2 --native-tls --python \1", text)
    text = text.replace("python -m venv", "python -m venv --without-pip")
    return text.replace("--no-cache-dir ", "").replace("/venv", str(target))


def copy(words: list[str], into: Path) -> None:
    *sources, last = words
    for name in sources:
        found, target = ROOT / name, into / last
        if found.is_dir():
            shutil.copytree(found, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(found, target)


@pytest.mark.tools
def test_the_image_holds_working_commands_and_the_manifests(image: Path) -> None:
    for command in ("hami-dra", "hami-dra-webhook", "hami-dra-certs"):
        assert "Usage:" in said_by(image, command, "--help")

    printed = said_by(image, "hami-dra", "install", "--dry-run")

    assert "kind: MutatingWebhookConfiguration" in printed
    assert not (image / "bin" / "pip").exists()


def said_by(image: Path, command: str, *arguments: str) -> str:
    return subprocess.run(
        [image / "bin" / command, *arguments],
        cwd=image,
        env={"HOME": "/nonexistent", "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
