"""Keep what is built in the user's cache, under a key of everything that decides what is built."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hami_dra.lab.lock import locked

_KEY_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Cache:
    """Folders that are filled once and never half.

    Attributes:
        directory: holds one subfolder for each thing that is kept.
    """

    directory: Path

    def folder(self, name: str, key: str, fill: Callable[[Path], None]) -> Path:
        """Return the folder of a name and a key, filled now unless it is there.

        Folders of the name with other keys go when a new one is whole.

        Args:
            name: what is kept, such as a version.
            key: digest of what decides the content.
            fill: puts the content into an empty folder.
        """
        home = self.directory / f"{name}-{key}"
        if not home.is_dir():
            # Let one build run at a time.
            with locked(self.directory / ".lock", "waiting for a build in another process"):
                # Whoever held the lock before may have filled it.
                if not home.is_dir():
                    self._fill(home, fill)
                    self._remove_others(home, name)
        return home

    def _fill(self, home: Path, fill: Callable[[Path], None]) -> None:
        """Fill a folder beside the place where it belongs and move it there when it is whole."""
        with tempfile.TemporaryDirectory(dir=self.directory, prefix=".building-") as temporary:
            folder = Path(temporary) / "result"
            folder.mkdir()
            fill(folder)
            folder.rename(home)

    def _remove_others(self, home: Path, name: str) -> None:
        """Remove what older inputs of the name gave, and what killed builds left."""
        for pattern in (f"{name}-*", ".building-*"):
            for path in self.directory.glob(pattern):
                if path != home:
                    shutil.rmtree(path)


def user_cache(name: str) -> Path:
    """Return where things of a kind are kept: below XDG_CACHE_HOME, or else ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hami-dra" / name


def cache_key(inputs: Mapping[str, bytes]) -> str:
    """Digest named inputs so that any change of a name or a content changes the key."""
    digest = hashlib.sha256()
    for name, content in sorted(inputs.items()):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_KEY_DIGITS]
