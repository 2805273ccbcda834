"""The real Helm, built from its Go module once and kept in the user's cache.

`python -m tests.tools.helm` builds it, with progress, before tests that need it.
"""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hami_dra.lab import progress, toolchain
from hami_dra.lab.build import go_environment
from hami_dra.lab.cache import Cache, cache_key, user_cache
from hami_dra.lab.failure import LabError

_SOURCE: Final = Path(__file__).parent / "helm"
_COMMAND: Final = "helm.sh/helm/v4/cmd/helm"
_REQUIREMENT: Final = re.compile(r"^\s*helm\.sh/helm/v4 (v[0-9.]+)", re.MULTILINE)
_DURATION: Final = "first build: 4-8 min on 2 cores"
# Not optimized: it runs for a second, and takes a quarter less to compile.
_FLAGS: Final = ("-trimpath", "-gcflags", "all=-N -l", "-ldflags", "-s -w")


def binary() -> Path:
    """Return the helm command, built now unless it is in the user's cache.

    Raises:
        LabError: if it cannot be built; the message holds what the compiler said.
    """
    inputs = _inputs()
    return Cache(user_cache("tools")).folder("helm", cache_key(inputs), _compile) / "helm"


def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run helm without a cluster and without a person's settings."""
    return subprocess.run(
        [binary(), *arguments],
        env={"HELM_NO_PLUGINS": "1", "HOME": "/nonexistent", "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=check,
    )


def _inputs() -> Mapping[str, bytes]:
    """Collect all that decides what the compiler writes."""
    go = toolchain.find("go")
    said = subprocess.run(
        [go, "env", "GOVERSION", "GOOS", "GOARCH"],
        env=go_environment(),
        check=True,
        stdout=subprocess.PIPE,
    )
    files = {name: (_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum")}
    return {**files, "go": said.stdout, "flags": repr(_FLAGS).encode()}


def _compile(folder: Path) -> None:
    found = _REQUIREMENT.search((_SOURCE / "go.mod").read_text())
    version = found[1] if found else "of an unknown version"
    code, said = progress.run(
        [str(toolchain.find("go")), "build", *_FLAGS, "-o", str(folder / "helm"), _COMMAND],
        text=f"building Helm {version} ({_DURATION})",
        cwd=_SOURCE,
        env=go_environment(),
    )
    if code:
        raise LabError(f"go build: exit code {code}, expected helm; the compiler said:\n{said}")


if __name__ == "__main__":
    print(binary())
