"""Builds the library and the fake driver, and runs programs under them.

A compiler of the machine is used when it has one; `zig cc` from the registry otherwise.
"""

import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from hami_dra.node import limit_files
from hami_dra.node.limits import Control, DeviceLimit
from tests.native import tools
from tests.native.tools import Machine

ROOT: Final = Path(__file__).parents[2]
NATIVE: Final = ROOT / "native"
UUIDS: Final = (
    "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f",
    "GPU-20212223-2425-2627-2829-2a2b2c2d2e2f",
)
"""Of the fake cards."""
THIS: Final = Machine(tools.HOST, (), sys.executable)
_TIMEOUT_S: Final = 60.0
_ZIG: Final = (sys.executable, "-m", "ziglang", "cc")


def compiler(machine: Machine = THIS) -> list[str]:
    """Return the C compiler to call."""
    if machine.runner:
        # As what ships is built.
        return [*_ZIG, "-target", f"{machine.name}-linux-gnu.2.17", "-fno-sanitize=undefined"]
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    if found := shutil.which("gcc") or shutil.which("cc"):
        return [found]
    return list(_ZIG)


@dataclass(frozen=True)
class Built:
    """What `make` made, and the machine that it is for."""

    directory: Path
    machine: Machine = THIS

    @property
    def library(self) -> Path:
        """The library with the crash points and the movable claims directory."""
        return self.directory / "testing" / "libvgpu.so"

    @property
    def shipped(self) -> Path:
        """The library as it ships."""
        return self.directory / "libvgpu.so"

    @property
    def fake(self) -> Path:
        """The folder of the fake driver."""
        return self.directory / "fake"

    def compile(self, output: Path, source: str, *flags: str) -> Path:
        """Compile a C text."""
        path = output.with_suffix(".c")
        path.write_text(source)
        command = [*compiler(self.machine), "-std=gnu11", "-D_GNU_SOURCE", f"-I{NATIVE}/include"]
        subprocess.run(
            [*command, str(path), "-o", str(output), *flags], check=True, timeout=_TIMEOUT_S
        )
        return output


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what is marked `foreign` on an emulated machine of the other architecture too."""
    marks = list(metafunc.definition.iter_markers("foreign"))
    if marks and tools.HOST != tools.FOREIGN:
        pages = [size for mark in marks for size in mark.kwargs.get("pages", (4096,))]
        names = [f"{tools.FOREIGN}-{size >> 10}k" for size in pages]
        metafunc.parametrize(
            "machine", [None, *pages], ids=[tools.HOST, *names], indirect=True, scope="session"
        )


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> Machine:
    """This machine, or the emulated one with pages of a size."""
    page_bytes = getattr(request, "param", None)
    return tools.foreign(page_bytes) if page_bytes else THIS


@pytest.fixture(scope="session")
def built(machine: Machine) -> Built:
    return build(machine)


def build(machine: Machine = THIS) -> Built:
    """Build what is not built yet."""
    directory = NATIVE / "build"
    own = [f"CC={shlex.join(compiler(machine))}"]
    if machine.runner:
        directory /= f"emulated-{machine.name}"
        own += [f"BUILD={directory}", f"MACHINE={machine.name}"]
    make(*own, "library", "test-assets")
    return Built(directory, machine)


def make(*arguments: str) -> None:
    """Run `make` in native/, one at a time."""
    directory = NATIVE / "build"
    directory.mkdir(exist_ok=True)
    command = ["make", "-s", "-C", str(NATIVE), *arguments]
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=True, timeout=10 * _TIMEOUT_S)


@dataclass
class Container:
    """Programs that run as if in one container: the same claims and the same cards."""

    built: Built
    directory: Path
    variables: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def claims(self) -> Path:
        return self.directory / "claims"

    def claim(self, *devices: DeviceLimit, uid: str = "one", **rest: Any) -> Path:
        """Make a claim's files as the node agent does."""
        path = self.claims / uid
        path.mkdir(parents=True, exist_ok=True)
        limit_files.create(path, Control(devices, **rest))
        return path

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self.built.fake),
            "LD_PRELOAD": str(self.built.library),
            "PYTHONPATH": str(ROOT),
            "VGPU_CLAIMS_DIRECTORY": str(self.claims),
            "VGPU_FAKE_STATE": str(self.directory / "cards"),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(self.directory / "cache"),
            **self.variables,
            **(more or {}),
        }

    def start(self, program: str | list[str], **variables: str) -> subprocess.Popen[str]:
        """Start a Python text, or a command."""
        command = program
        if isinstance(program, str):
            command = self.python(program)
        process = subprocess.Popen(
            [*self.built.machine.runner, *command],
            env=self.built.machine.environment(self.environment(variables)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def python(self, text: str) -> list[str]:
        """Return the command that runs a Python text with what all of them import."""
        head = "import ctypes, os, signal, sys, threading, time\nfrom tests.native.cuda import *\n"
        return [self.built.machine.python, "-S", "-c", head + textwrap.dedent(text)]

    def run(self, program: str | list[str], **variables: str) -> Any:
        """Run it to its end, which must be a good one; returns what it told."""
        process = self.start(program, **variables)
        told, said = process.communicate(timeout=_TIMEOUT_S)
        assert process.returncode == 0, (process.returncode, told, said)
        self.said = said
        return json.loads(told) if told.strip() else None

    def kill_at(self, label: str, program: str) -> None:
        """Run a text that the library ends at a crash point."""
        process = self.start(program, VGPU_CRASH_AT=label)
        process.communicate(timeout=_TIMEOUT_S)
        assert process.returncode == -signal.SIGKILL

    def stop(self) -> None:
        """End what still runs."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    said: str = ""


@pytest.fixture
def container(built: Built, tmp_path: Path) -> Iterator[Container]:
    made = Container(built, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def limited(container: Container) -> Container:
    """A container that may use 1000 MiB of each of two cards."""
    container.claim(*(DeviceLimit(uuid, 1000 << 20) for uuid in UUIDS))
    return container
