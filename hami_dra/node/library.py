"""Bring the native library into containers (ruling 42).

On the host every version lies under its own digest and is never replaced, because running
processes have it mapped. It lies on a disk and not below /run, which may forbid programs.
"""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from hami_dra.node.allocation import PrepareError
from hami_dra.node.cdi import Mount
from hami_dra.node.files import Files, read

IN_CONTAINER: Final = "/usr/local/vgpu/libvgpu.so"
"""Where containers see the library; HAMi's own path."""

PRELOAD: Final = "/etc/ld.so.preload"
"""By which the dynamic loader maps it into every process that is linked dynamically."""

_LIBRARY: Final = "libvgpu.so"
_LIST: Final = "ld.so.preload"
_DIGEST: Final = frozenset("0123456789abcdef")
_DIGITS: Final = 64


class Library:
    """The versions of the library on this node.

    Args:
        source: the version that new claims get.
        directory: holds one directory for each version; on the host the same path.
        files: changes the disk.
    """

    def __init__(self, source: Path, directory: Path, files: Files) -> None:
        self._source = source
        self._directory = directory
        self._files = files
        self.digest = ""

    def install(self) -> None:
        """Have the version on the host that new claims get.

        Its digest is known from then on, even if it could not be written: without it on the host
        claims are refused, and with none they would run without limits.

        Raises:
            OSError: if it cannot be read or written.
        """
        content = self._source.read_bytes()
        self.digest = digest = hashlib.sha256(content).hexdigest()
        home = self._directory / digest
        self._directory.mkdir(mode=0o755, exist_ok=True)
        self._files.make_directory(home)
        for name, wanted in ((_LIST, f"{IN_CONTAINER}\n".encode()), (_LIBRARY, content)):
            # After a power cut a file may be there without its content, and a library that cannot
            # be loaded is passed over: containers would run without limits.
            if read(home / name) != wanted:
                self._files.write(home / name, wanted, mode=0o644)

    def mounts(self, digest: str) -> Sequence[Mount]:
        """Return what brings a version into a container.

        Raises:
            PrepareError: if the version is not on the host: a container without it would run
                without limits.
        """
        home = self._directory / digest
        if not self._is_whole(home) and digest == self.digest:
            self.install()
        if not self._is_whole(home):
            raise PrepareError(
                f"the library {digest[:12]} with which this claim was prepared is not on the node"
                " any more; delete the pod so that it is prepared anew"
            )
        return (
            Mount(str(home / _LIBRARY), IN_CONTAINER, may_execute=True),
            Mount(str(home / _LIST), PRELOAD),
        )

    def remove_unused(self, used: Collection[str]) -> tuple[str, ...]:
        """Remove versions that no claim has and none will get; return their digests."""
        kept = {*used, self.digest}
        try:
            found = sorted(path.name for path in self._directory.iterdir())
        except FileNotFoundError:
            return ()
        unused = [name for name in found if _is_digest(name) and name not in kept]
        for name in unused:
            self._files.remove_tree(self._directory / name)
        return tuple(unused)

    @staticmethod
    def _is_whole(home: Path) -> bool:
        return (home / _LIBRARY).exists() and (home / _LIST).exists()


def _is_digest(name: str) -> bool:
    return len(name) == _DIGITS and set(name) <= _DIGEST
