"""Read a Dockerfile of two stages and run its building stage without Docker.

Its steps run on this host with folders of ours in place of the image's, by uv in place of pip, so
what they install is what the image would hold.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hami_dra.lab.failure import LabError

Step = tuple[str, str]
"""An instruction and its text, on one line."""

TARGET: Final = "/venv"
"""What the building stage makes and the other stage takes."""

# Where a runtime looks for programs in an image that does not say.
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A Dockerfile.

    Attributes:
        checkout: the folder that it is built in.
        steps: all instructions in order.
    """

    checkout: Path
    steps: tuple[Step, ...]

    @classmethod
    def read(cls, checkout: Path) -> "Dockerfile":
        """Read the one that ships."""
        file = checkout / "manifests" / "image" / "Dockerfile"
        lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
        words = (line.partition(" ") for line in joined.splitlines() if line)
        return cls(checkout, tuple((name, text) for name, _, text in words))

    def build_steps(self) -> tuple[Step, ...]:
        """Return the instructions of the stage that builds."""
        first, second = self._stages()
        return self.steps[first + 1 : second]

    def copied(self) -> list[str]:
        """Name what comes from the checkout."""
        return [
            source
            for name, text in self.build_steps()
            if name == "COPY"
            for source in text.split()[:-1]
        ]

    def config(self) -> dict[str, Any]:
        """Return how the image runs, as an OCI image says it."""
        found: dict[str, Any] = {"Env": [f"PATH={_PATH}"]}
        for name, text in self.steps[self._stages()[1] :]:
            if name == "ENV":
                found["Env"] = _environment(found["Env"], shlex.split(text))
            elif name == "LABEL":
                found["Labels"] = dict(each.split("=", 1) for each in shlex.split(text))
            elif name == "USER":
                found["User"] = text
            elif name == "EXPOSE":
                found["ExposedPorts"] = {f"{text}/tcp": {}}
            elif name == "CMD":
                found["Cmd"] = json.loads(text)
        return found

    def build(self, target: Path, scratch: Path) -> None:
        """Run the building stage.

        Args:
            target: stands for `/venv`; must not exist yet.
            scratch: an empty folder for what the stage needs beside.

        Raises:
            LabError: if a step fails; the message holds what it said.
        """
        base, source = scratch / "base", scratch / "src"
        venv.create(base)
        source.mkdir()
        path = f"{base / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        for name, text in self.build_steps():
            if name == "COPY":
                self._copy(text.split(), source)
            if name == "RUN":
                _run(_here(text, target), source, {**os.environ, "PATH": path})

    def _stages(self) -> tuple[int, int]:
        first, second = (place for place, (name, _) in enumerate(self.steps) if name == "FROM")
        return first, second

    def _copy(self, words: list[str], into: Path) -> None:
        *sources, last = words
        for name in sources:
            found, target = self.checkout / name, into / last
            if found.is_dir():
                shutil.copytree(found, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)


def _environment(before: list[str], added: list[str]) -> list[str]:
    """Return variables with more of them, which may use those before."""
    values = dict(each.split("=", 1) for each in before)
    for each in added:
        name, value = each.split("=", 1)
        values[name] = re.sub(r"\$(\w+)", lambda match: values.get(match[1], ""), value)
    return [f"{name}={value}" for name, value in values.items()]


def _here(text: str, target: Path) -> str:
    """Return a step as it runs here: in another folder, by the faster installer and its cache."""
    text = re.sub(r"(\S*python) -m pip (\w+)", r"uv pip \2 --native-tls --python \1", text)
    text = text.replace("python -m venv", "python -m venv --without-pip")
    return text.replace("--no-cache-dir ", "").replace(TARGET, str(target))


def _run(script: str, cwd: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["/bin/bash", "-euc", script],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"Dockerfile: this step failed: {script}\n{done.stdout}{done.stderr}")
