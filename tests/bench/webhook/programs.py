"""Build the load generator and the Go competitors once per change of their source."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from hami_dra.lab import progress, toolchain
from hami_dra.lab.build import cache_directory, cache_key
from hami_dra.lab.failure import LabError

SOURCE: Final = Path(__file__).parent
"""The Go module."""

_FLAGS: Final = ("-trimpath", "-ldflags", "-s -w")
_SOURCES: Final = ("*.go", "go.mod", "go.sum")


def directory() -> Path:
    """Return the folder with `load`, `typed` and `claims`, built now unless they are cached."""
    go = toolchain.find("go")
    home = cache_directory().parent / "bench-webhook" / cache_key(_inputs(go))
    if not home.is_dir():
        _build(go, home)
    return home


def _inputs(go: Path) -> dict[str, bytes]:
    """Collect what decides what the compiler writes."""
    files = (file for pattern in _SOURCES for file in SOURCE.rglob(pattern))
    content = {str(file.relative_to(SOURCE)): file.read_bytes() for file in files}
    version = subprocess.run(
        [go, "env", "GOVERSION", "GOOS", "GOARCH"],
        env=_environment(),
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return {**content, "go": version, "flags": " ".join(_FLAGS).encode()}


def _build(go: Path, home: Path) -> None:
    """Build beside the place where it belongs and move it there when it is whole."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".building-") as temporary:
        folder = Path(temporary) / "result"
        folder.mkdir()
        code, said = progress.run(
            [str(go), "build", *_FLAGS, "-o", f"{folder}/", "./..."],
            text="building the load generator and the Go webhooks (first time: minutes)",
            cwd=SOURCE,
            env=_environment(),
        )
        if code:
            raise LabError(f"go build: exit code {code}, expected 0; the compiler said:\n{said}")
        if not home.is_dir():  # another run may have been faster
            folder.rename(home)
    for other in home.parent.iterdir():
        if other != home and not other.name.startswith("."):
            shutil.rmtree(other)


def _environment() -> dict[str, str]:
    """Keep a user's Go settings from changing what is built."""
    ours = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    return {**os.environ, **ours}
