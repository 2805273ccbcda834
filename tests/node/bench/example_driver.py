"""The Kubernetes example driver, in Go: what the agent is measured beside."""

import subprocess
from pathlib import Path
from typing import Final

from hami_dra.lab import build, toolchain
from hami_dra.lab.cache import Cache, cache_key, user_cache

DRIVER: Final = "gpu.example.com"
_PACKAGE: Final = "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"
_SOURCE: Final = Path(__file__).parent / "example"
_NAME: Final = "dra-example-kubeletplugin"


def program() -> Path:
    """Return the driver, built now unless it is in the user's cache."""
    go = toolchain.find("go")
    inputs = {name: (_SOURCE / name).read_bytes() for name in ("go.mod", "go.sum")}

    def fill(folder: Path) -> None:
        argv = [str(go), "build", "-trimpath", "-o", str(folder / _NAME), _PACKAGE]
        subprocess.run(argv, cwd=_SOURCE, env=build.go_environment(), check=True)

    return Cache(user_cache("node")).folder("example", cache_key(inputs), fill) / _NAME
