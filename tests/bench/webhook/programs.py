"""Build the load generator and the Go competitors once per change of their source."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from hami_dra.lab import progress, toolchain
from hami_dra.lab.build import go_environment
from hami_dra.lab.cache import Cache, cache_key, user_cache
from hami_dra.lab.failure import LabError

SOURCE: Final = Path(__file__).parent
"""The Go module."""

_FLAGS: Final = ("-trimpath", "-ldflags", "-s -w")
_SOURCES: Final = ("*.go", "go.mod", "go.sum")


def directory() -> Path:
    """Return the folder with `load`, `typed` and `claims`, built now unless they are cached.

    Raises:
        LabError: if they cannot be built; the message holds what the compiler said.
    """
    go = toolchain.find("go")
    key = cache_key(_inputs(go))
    return Cache(user_cache("bench-webhook")).folder("programs", key, partial(_build, go))


def _inputs(go: Path) -> dict[str, bytes]:
    """Collect what decides what the compiler writes."""
    files = (file for pattern in _SOURCES for file in SOURCE.rglob(pattern))
    content = {str(file.relative_to(SOURCE)): file.read_bytes() for file in files}
    version = subprocess.run(
        [go, "env", "GOVERSION", "GOOS", "GOARCH"],
        env=go_environment(),
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return {**content, "go": version, "flags": " ".join(_FLAGS).encode()}


def _build(go: Path, folder: Path) -> None:
    code, said = progress.run(
        [str(go), "build", *_FLAGS, "-o", f"{folder}/", "./..."],
        text="building the load generator and the Go webhooks (first time: minutes)",
        cwd=SOURCE,
        env=go_environment(),
    )
    if code:
        raise LabError(f"go build: exit code {code}, expected 0; the compiler said:\n{said}")
