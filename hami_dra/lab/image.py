"""Write container images, so that no registry is needed.

An OCI archive with one layer, and the same bytes for the same content.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hami_dra.lab.failure import LabError

PROGRAMS: Final = ("sh", "cat", "env", "ls", "sleep", "base64", "touch", "grep", "head")

_FOLDERS: Final = ("dev", "etc", "proc", "run", "sys", "tmp")
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")
_MEDIA: Final = "application/vnd.oci.image"


@dataclass(slots=True)
class Layer:
    """The files of an image; all of them belong to root and are as old as the epoch."""

    _files: dict[str, tuple[Path | bytes, int]] = field(default_factory=dict)
    _links: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, content: Path | bytes, *, mode: int = 0o644) -> None:
        """Add a file; a path is read when the layer is written."""
        self._files[name.lstrip("/")] = content, mode

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        self._links[name.lstrip("/")] = target

    def add_tree(self, root: Path) -> None:
        """Add everything below a folder under the same names, executable or not."""
        for path in root.rglob("*"):
            name = str(path.relative_to(root))
            if path.is_symlink():
                self.link(name, str(path.readlink()))
            elif path.is_file():
                self.add(name, path, mode=0o755 if path.stat().st_mode & 0o100 else 0o644)

    def add_programs(self, programs: Mapping[str, Path]) -> None:
        """Add programs by their names in the image, and the libraries that they load."""
        for name, path in programs.items():
            self.add(name, path, mode=0o755)
        self.add_libraries(programs.values())

    def add_libraries(self, users: Iterable[Path]) -> None:
        """Add the libraries that programs and other libraries load, where the loader looks."""
        for library in libraries(users):
            self.add(library, Path(library), mode=0o755)

    def write(self, path: Path) -> None:
        """Write the layer, names in order."""
        folders = {str(each) for name in (*self._files, *self._links) for each in _parents(name)}
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
            for name in sorted({*folders, *_FOLDERS, *self._files, *self._links}):
                self._write_one(archive, name)

    def _write_one(self, archive: tarfile.TarFile, name: str) -> None:
        entry = tarfile.TarInfo(name)
        if name in self._links:
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, self._links[name], 0o777
            archive.addfile(entry)
        elif name in self._files:
            content, entry.mode = self._files[name]
            data = content if isinstance(content, bytes) else content.read_bytes()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        else:
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)


def write_archive(path: Path, name: str, layer: Layer, config: Mapping[str, Any]) -> str:
    """Write an archive that `ctr images import` takes, and return the image's digest.

    Args:
        path: the archive.
        name: of the image, such as `example.com/probe:1`.
        layer: its files.
        config: how it runs, as an OCI image says it.
    """
    plain = path.with_suffix(".layer")
    layer.write(plain)
    try:
        blobs: dict[str, Path | bytes] = {}

        def add(content: Path | bytes, kind: str) -> dict[str, Any]:
            described = _described(content, f"{_MEDIA}.{kind}")
            blobs[f"blobs/{described['digest'].replace(':', '/')}"] = content
            return described

        content = add(plain, "layer.v1.tar")
        rootfs = {"type": "layers", "diff_ids": [content["digest"]]}
        about = {"architecture": _architecture(), "os": "linux"}
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": add(
                _json({**about, "config": dict(config), "rootfs": rootfs}), "config.v1+json"
            ),
            "layers": [content],
        }
        described = add(_json(manifest), "manifest.v1+json")
        named = {**described, "annotations": {"io.containerd.image.name": name}}
        index = _json({"schemaVersion": 2, "manifests": [named]})
        version = _json({"imageLayoutVersion": "1.0.0"})
        _write_files(path, {"oci-layout": version, "index.json": index, **blobs})
    finally:
        plain.unlink()
    digest: str = described["digest"]
    return digest


def write_image(
    path: Path,
    name: str,
    programs: Sequence[str] = PROGRAMS,
    *,
    command: Sequence[str] = ("/bin/sleep", "1000000"),
) -> None:
    """Write an image of programs of this host.

    Args:
        path: the archive.
        name: of the image, such as `example.com/probe:1`.
        programs: what it can run, found on PATH.
        command: what it runs where a pod does not say.
    """
    layer = Layer()
    layer.add_programs({f"bin/{program}": _find(program) for program in programs})
    config = {"Cmd": [*command], "Env": ["PATH=/bin"]}
    write_archive(path, name, layer, config)


def libraries(users: Iterable[Path]) -> set[str]:
    """Return the libraries that programs and other libraries load, as the loader names them.

    The loader itself is among them.
    """
    argv = ["ldd", *map(str, users)]
    # Of the host. It fails for what is linked statically, and says nothing of it.
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return set(_LIBRARY.findall(done.stdout))


def _write_files(path: Path, files: Mapping[str, Path | bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            data = content if isinstance(content, bytes) else content.read_bytes()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _described(content: Path | bytes, kind: str) -> dict[str, Any]:
    data = content if isinstance(content, bytes) else content.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _architecture() -> str:
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _parents(name: str) -> list[str]:
    """Name the folders above a file."""
    return [str(each) for each in Path(name).parents if str(each) != "."]


def _find(program: str) -> Path:
    found = shutil.which(program)
    if found is None:
        raise LabError(f"{program}: not found on PATH, expected a program for the test image")
    return Path(found).resolve()


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
