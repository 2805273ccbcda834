"""Programs in Go: the Kubernetes example driver, and a kubelet's calls as a kubelet makes them."""

import subprocess
from pathlib import Path
from typing import Final

from hami_dra.lab import build, toolchain
from hami_dra.lab.cache import Cache, cache_key, user_cache

DRIVER: Final = "gpu.example.com"
"""What the example driver is called."""

_SOURCE: Final = Path(__file__).parent / "example"
_INPUTS: Final = ("go.mod", "go.sum", "kubelet/main.go")
_DRIVER: Final = "sigs.k8s.io/dra-example-driver/cmd/dra-example-kubeletplugin"
_KUBELET: Final = "./kubelet"


def example_driver() -> Path:
    """Return the example driver."""
    return _programs() / Path(_DRIVER).name


def kubelet() -> Path:
    """Return the program that calls drivers; its source says how it is asked."""
    return _programs() / Path(_KUBELET).name


def _programs() -> Path:
    """Return the folder of both, built now unless they are in the user's cache."""
    go = toolchain.find("go")

    def fill(folder: Path) -> None:
        argv = [str(go), "build", "-trimpath", "-o", f"{folder}/", _DRIVER, _KUBELET]
        subprocess.run(argv, cwd=_SOURCE, env=build.go_environment(), check=True)

    inputs = {name: (_SOURCE / name).read_bytes() for name in _INPUTS}
    return Cache(user_cache("node")).folder("example", cache_key(inputs), fill)
