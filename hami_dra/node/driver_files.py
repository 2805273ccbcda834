"""What containers need to use NVIDIA's cards, found without NVIDIA's toolkit.

The toolkit's hooks make links and refresh the loader's cache inside the container. Here every file
is mounted under each name that the driver's own installation gives it, in the directories where the
loaders of Debian and of Red Hat look without a cache. That serves programs that compute, in images
with glibc; graphics and other images need the toolkit.
"""

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.migration import Json
from hami_dra.node.backend import BackendError
from hami_dra.node.cdi import Mount, NodeEdits
from hami_dra.node.inventory import Card

_CUDA: Final = "libcuda.so.1"
_COMPUTE: Final = (
    *("libcuda", "libcudadebugger", "libnvcuvid", "libnvidia-allocator", "libnvidia-cfg"),
    *("libnvidia-encode", "libnvidia-gpucomp", "libnvidia-ml", "libnvidia-nvvm"),
    *("libnvidia-opencl", "libnvidia-ptxjitcompiler"),
)
_PROGRAMS: Final = ("usr/bin/nvidia-smi", "bin/nvidia-smi")
_SOCKET: Final = "run/nvidia-persistenced/socket"
_CONTROL_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_NEEDED_NODES: Final = _CONTROL_NODES[:2]


@dataclass(frozen=True, slots=True)
class DriverRoot:
    """Where the driver is installed.

    Attributes:
        here: its root as this process sees it.
        host: the same directory as the container runtime sees it.
        devices: where the host's device nodes show; the driver's root may have none.
    """

    here: Path
    host: Path
    devices: Path = Path("/dev")

    def edits(self, cards: Sequence[Card]) -> NodeEdits:
        """List what containers need.

        Raises:
            BackendError: if the driver's libraries are not below this root, or a device node is
                missing without which nobody can compute.
        """
        try:
            return self._edits(cards)
        except OSError as error:
            # As while the driver is installed.
            raise BackendError(f"the driver's files cannot be read: {error}") from error

    def _edits(self, cards: Sequence[Card]) -> NodeEdits:
        version = next((card.driver_version for card in cards), "")
        libraries = self._libraries(version)
        directories = _where_loaders_look()
        mounts = [
            self._mount(path, f"{directory}/{name}")
            for name, path in sorted(libraries.items())
            for directory in directories
        ]
        mounts += [self._mount(path, f"/usr/bin/{path.name}") for path in self._programs()]
        mounts += [self._mount(path, f"/{path.relative_to(self.here)}") for path in self._others()]
        nodes = [self._node(name) for name in _CONTROL_NODES if self._has_node(name)]
        if missing := [name for name in _NEEDED_NODES if self._node(name) not in nodes]:
            raise BackendError(
                f"found no device node {', '.join(missing)} in {self.devices}, expected those of"
                " the driver's modules: load them on the node with `nvidia-modprobe -c0 -u`"
            )
        return NodeEdits(
            common={"mounts": mounts, "deviceNodes": nodes},
            cards={
                card.uuid: {"deviceNodes": [self._node(f"nvidia{card.minor}")]} for card in cards
            },
        )

    def _libraries(self, version: str) -> Mapping[str, Path]:
        """Return the files of the driver's libraries by each name that they go by."""
        directory = self._library_directory()
        found: dict[str, Path] = {}
        for path in directory.iterdir():
            target = self._resolved(path)
            if target is not None and _is_compute(target.name, version):
                found[path.name] = target
        if _CUDA not in found:
            raise BackendError(
                f"found {directory / _CUDA} of another driver than {version}, which runs: restart"
                " the node after an update of the driver"
            )
        return found

    def _library_directory(self) -> Path:
        architecture = f"{platform.machine()}-linux-gnu"
        places = ("usr/lib64", f"usr/lib/{architecture}", "lib64", f"lib/{architecture}", "usr/lib")
        for place in places:
            # A link, or a directory of that name, that leads nowhere must not hide the real one.
            if self._resolved(self.here / place / _CUDA) is not None:
                return self.here / place
        raise BackendError(
            f"found no {_CUDA} below {self.here}, expected it in one of {', '.join(places)}: name"
            " the driver's root with --driver-root, or install nvidia-container-toolkit"
        )

    def _resolved(self, path: Path) -> Path | None:
        """Follow links inside of the root, as they would lead on the host; None for no file."""
        for _ in range(8):
            if not path.is_symlink():
                return path if path.is_file() else None
            target = path.readlink()
            inside = self.here / target.relative_to("/") if target.is_absolute() else None
            path = inside or path.parent / target
        return None

    def _programs(self) -> list[Path]:
        return [self.here / name for name in _PROGRAMS if self._is_there(name)][:1]

    def _others(self) -> Iterator[Path]:
        """Find what the driver reads beside its libraries."""
        yield from sorted((self.here / "lib/firmware/nvidia").glob("*/gsp*.bin"))
        if self._is_there(_SOCKET):
            yield self.here / _SOCKET

    def _has_node(self, name: str) -> bool:
        return (self.devices / name).exists() or self._is_there(f"dev/{name}")

    def _is_there(self, name: str) -> bool:
        return (self.here / name).exists()

    def _mount(self, path: Path, container: str) -> Json:
        host = self.host / path.relative_to(self.here)
        return Mount(str(host), container, may_execute=True).as_json()

    @staticmethod
    def _node(name: str) -> Json:
        # Device nodes are the host's, wherever the driver's files are.
        return {"path": f"/dev/{name}"}


def _where_loaders_look() -> tuple[str, str]:
    return "/usr/lib64", f"/usr/lib/{platform.machine()}-linux-gnu"


def _is_compute(name: str, version: str) -> bool:
    stem, _, rest = name.partition(".so.")
    return stem in _COMPUTE and rest == version
