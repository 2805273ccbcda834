"""Build the control plane once per change of its inputs and keep it in the user's cache.

The cache's key covers everything that decides what the compiler writes, so a binary is never
stale and never built twice. `assets` is what a cluster starts from.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hami_dra.lab import modules, progress, toolchain
from hami_dra.lab.failure import LabError
from hami_dra.lab.modules import Module

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_LINKS = (*CONTROL_PLANE, "kubelet")
_BINARY = "cluster"

_VERSION_PACKAGE = "k8s.io/component-base/version"
_KEY_DIGITS = 12

# Short, so that a line of 80 columns holds it and the elapsed time.
_DURATION = "first build: 6-15 min on 2 cores"


@dataclass(frozen=True, slots=True)
class Assets:
    """A folder that holds one program for each component.

    Attributes:
        directory: the folder.
        version: the Kubernetes version of its programs, such as `1.37.2`.
    """

    directory: Path
    version: str


@dataclass(frozen=True, slots=True)
class Builder:
    """Where a build takes its inputs from and puts its results.

    Attributes:
        go: the Go command.
        source: the folder with main.go and the module files.
        cache: the folder with one subfolder for each binary.
    """

    go: Path
    source: Path
    cache: Path

    def binary(self, module: Module) -> Path:
        """Return the multi-call binary of a version, built now unless it is in the cache."""
        key = cache_key(self._inputs(module))
        home = self.cache / f"{module.version}-{key}"
        if not home.is_dir():
            with self._lock():
                # Whoever held the lock before may have built it.
                if not home.is_dir():
                    self._build_into(home, module)
        return home / _BINARY

    def _inputs(self, module: Module) -> Mapping[str, bytes]:
        """Collect all that decides what the compiler writes."""
        code = {
            str(file.relative_to(self.source)): file.read_bytes()
            for file in sorted(self.source.rglob("*.go"))
        }
        return {
            **code,
            "go.mod": module.file.read_bytes(),
            "go.sum": module.checksums.read_bytes(),
            "go": self._run("env", "GOVERSION", "GOOS", "GOARCH"),
            "ldflags": linker_flags(module.version).encode(),
        }

    def _build_into(self, home: Path, module: Module) -> None:
        """Build beside the place where it belongs and move it there when it is whole."""
        with tempfile.TemporaryDirectory(dir=self.cache, prefix=".building-") as temporary:
            folder = Path(temporary) / "result"
            folder.mkdir()
            self._compile(folder / _BINARY, module)
            for name in _LINKS:
                (folder / name).symlink_to(_BINARY)
            folder.rename(home)
        self._remove_others(home, module)

    def _compile(self, output: Path, module: Module) -> None:
        argv = [
            *(str(self.go), "build", "-trimpath", "-modfile", str(module.file)),
            *("-ldflags", linker_flags(module.version), "-o", str(output), "."),
        ]
        text = f"building Kubernetes {module.version} ({_DURATION})"
        code, said = progress.run(argv, text=text, cwd=self.source, env=go_environment())
        if code:
            raise LabError(
                f"go build: exit code {code}, expected a binary of Kubernetes {module.version};"
                f" the compiler said:\n{said}"
            )

    def _remove_others(self, home: Path, module: Module) -> None:
        """Remove what older inputs of the version gave, and what killed builds left."""
        for pattern in (f"{module.version}-*", ".building-*"):
            for path in self.cache.glob(pattern):
                if path != home:
                    shutil.rmtree(path)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one build run at a time; the kernel frees the lock of a killed one."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("waiting for a build that runs in another process", file=sys.stderr)
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _run(self, *arguments: str) -> bytes:
        return subprocess.run(
            [self.go, *arguments], env=go_environment(), check=True, stdout=subprocess.PIPE
        ).stdout


def assets(version: str | None = None) -> Assets:
    """Return the programs of a version: prebuilt ones that the user names, or else our build.

    Args:
        version: such as `1.37` or `1.37.2`; default is the prebuilt one, or else `DEFAULT`.
    """
    prebuilt = os.environ.get(ASSETS_VARIABLE)
    if prebuilt:
        return prebuilt_assets(Path(prebuilt), version)
    source = modules.source_directory()
    module = modules.choose(source, version or modules.DEFAULT)
    return Assets(binary(module.version).parent, module.version)


def binary(version: str = modules.DEFAULT) -> Path:
    """Return the multi-call binary of a version, built now unless it is in the user's cache."""
    source = modules.source_directory()
    builder = Builder(toolchain.find("go"), source, cache_directory())
    return builder.binary(modules.choose(source, version))


def prebuilt_assets(directory: Path, version: str | None) -> Assets:
    """Check that a folder of prebuilt programs is complete and of the version asked for."""
    missing = [name for name in CONTROL_PLANE if not os.access(directory / name, os.X_OK)]
    if missing:
        raise LabError(
            f"{ASSETS_VARIABLE}={directory}: found no program {', '.join(missing)}, expected"
            f" {', '.join(CONTROL_PLANE)}; add it, or unset the variable to build them"
        )
    found = _stated_version(directory / "kube-apiserver")
    if version not in (None, found, modules.minor(found)):
        raise LabError(
            f"{ASSETS_VARIABLE}={directory}: found Kubernetes {found}, expected {version};"
            " unset the variable to build that"
        )
    return Assets(directory, found)


def _stated_version(apiserver: Path) -> str:
    said = subprocess.run([apiserver, "--version"], check=True, capture_output=True, text=True)
    found = re.search(r"v(\d+\.\d+\.\d+)", said.stdout)
    if not found:
        raise LabError(
            f"{apiserver} --version: found {said.stdout.strip()!r}, expected `Kubernetes v1.37.2`"
            " or the like; use a release build"
        )
    return found[1]


def cache_directory() -> Path:
    """Return where binaries are kept: below XDG_CACHE_HOME, or else ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hami-dra" / "cluster"


def cache_key(inputs: Mapping[str, bytes]) -> str:
    """Digest named inputs so that any change of a name or a content changes the key."""
    digest = hashlib.sha256()
    for name, content in sorted(inputs.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_KEY_DIGITS]


def linker_flags(version: str) -> str:
    """Strip the binary and tell it its version, which a plain build of the module lacks."""
    major, minor, _ = version.split(".")
    stated = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(
        ["-s -w", *(f"-X {_VERSION_PACKAGE}.{name}={text}" for name, text in stated.items())]
    )


def go_environment() -> dict[str, str]:
    """Keep a user's Go settings from changing what is built."""
    ours = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    return {**os.environ, **ours}
