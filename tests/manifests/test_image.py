"""The image's Dockerfile is sound, and its steps work; no Docker is needed for either."""

import os
import platform
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hami_dra.lab.dockerfile import Dockerfile
from tests.tools.manifests import ROOT

DOCKERFILE = ROOT / "manifests" / "image" / "Dockerfile"
IGNORED = DOCKERFILE.with_name("Dockerfile.dockerignore")

RECIPE = Dockerfile.read(ROOT)


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")

    done = subprocess.run([hadolint, DOCKERFILE], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_nothing_runs_as_root_and_a_kubelet_can_see_it() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", RECIPE.config()["User"])


def test_how_the_image_runs_is_read_from_its_dockerfile() -> None:
    """The lab's image has no other source."""
    config = RECIPE.config()

    assert config["Cmd"] == ["hami-dra", "--help"]
    assert config["Env"][0].startswith("PATH=/venv/bin:/usr/local/sbin:")
    assert "PYTHONUNBUFFERED=1" in config["Env"]
    assert config["ExposedPorts"] == {"8443/tcp": {}}
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_only_what_is_built_from_reaches_the_builder() -> None:
    first, *others = [
        line for line in IGNORED.read_text().splitlines() if line and not line.startswith("#")
    ]

    assert first == "*"
    assert {line.removeprefix("!") for line in others if line[0] == "!"} == set(RECIPE.copied())


def test_everything_installed_is_pinned_by_hash() -> None:
    for name in ("run", "build"):
        text = (ROOT / ".ci" / "requirements" / f"{name}.txt").read_text()
        pins = re.findall(r"^[\w.-]+==[^ ]+(?: ;.*?)? \\$", text, re.MULTILINE)
        assert len(pins) == len(re.findall(r"^\S", text, re.MULTILINE))
    installs = re.findall(
        r"pip install (.*?)(?: &&|$)", "\n".join(text for _, text in RECIPE.build_steps())
    )
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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    assert needed <= set(held), "make image-requirements"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the steps of the building stage; return what stands for /venv."""
    target = tmp_path_factory.mktemp("image") / "venv"
    RECIPE.build(target, tmp_path_factory.mktemp("scratch"))
    return target


@pytest.mark.tools
def test_the_image_holds_working_commands_and_the_manifests(image: Path) -> None:
    for command in (
        "hami-dra",
        "hami-dra-webhook",
        "hami-dra-certs",
        "hami-dra-node",
        "hami-dra-monitor",
    ):
        assert "usage:" in said_by(image, command, "--help").lower()

    printed = said_by(image, "hami-dra", "install", "--dry-run")

    assert "kind: MutatingWebhookConfiguration" in printed
    assert not (image / "bin" / "pip").exists()


@pytest.mark.tools
def test_the_image_names_the_native_library_that_it_holds(image: Path, tmp_path: Path) -> None:
    """It is what `make native` builds for this machine."""
    variables = dict(each.split("=", 1) for each in RECIPE.config()["Env"])
    named = Path(variables["HAMI_DRA_NODE_LIBRARY"])
    made = tmp_path / "libvgpu.so"
    environment = {**os.environ, "ZIG": f"{sys.executable} -m ziglang"}
    release = [str(ROOT / "native" / "release"), platform.machine(), str(made)]
    subprocess.run(release, env=environment, check=True)

    assert (image / named.relative_to("/venv")).read_bytes() == made.read_bytes()


def said_by(image: Path, command: str, *arguments: str) -> str:
    return subprocess.run(
        [image / "bin" / command, *arguments],
        cwd=image,
        env={"HOME": "/nonexistent", "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
