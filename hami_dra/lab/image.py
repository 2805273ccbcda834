"""Write a container image from programs of this host, so that no registry is needed.

An OCI archive with one layer: the programs, and the libraries that they load.
"""

import gzip
import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from hami_dra.lab.failure import LabError

PROGRAMS: Final = ("sh", "cat", "env", "ls", "sleep", "base64", "touch", "grep", "head")

_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"


def write_image(path: Path, name: str, programs: Sequence[str] = PROGRAMS) -> None:
    """Write an archive that `ctr images import` takes.

    Args:
        path: the archive.
        name: of the image, such as `example.com/probe:1`.
        programs: what it can run, found on PATH.
    """
    layer = _layer(programs)
    blobs: dict[str, bytes] = {}

    def add(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/bin/sleep", "1000000"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(gzip.decompress(layer))]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add(_json(config), "application/vnd.oci.image.config.v1+json"),
        "layers": [add(layer, _LAYER)],
    }
    described = add(_json(manifest), str(manifest["mediaType"]))
    named = {**described, "annotations": {"io.containerd.image.name": name}}
    index = {"schemaVersion": 2, "manifests": [named]}
    files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index)}
    with tarfile.open(path, "w") as archive:
        for file, content in {**files, **blobs}.items():
            _add(archive, file, content, mode=0o644)


def _layer(programs: Sequence[str]) -> bytes:
    found = {program: _find(program) for program in programs}
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for folder in ("bin", "etc", "proc", "sys", "dev", "tmp", "run"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for program, path in found.items():
            _add(archive, f"bin/{program}", path.read_bytes(), mode=0o755)
        for library in sorted(_libraries(found.values())):
            _add(archive, library.lstrip("/"), Path(library).read_bytes(), mode=0o755)
    return gzip.compress(raw.getvalue(), mtime=0)


def _find(program: str) -> Path:
    found = shutil.which(program)
    if found is None:
        raise LabError(f"{program}: not found on PATH, expected a program for the test image")
    return Path(found).resolve()


def _libraries(programs: Iterable[Path]) -> set[str]:
    """Return the libraries that programs load, by the paths where the loader looks."""
    found: set[str] = set()
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout  # noqa: S607 - of the host
        found.update(_LIBRARY.findall(said))
    return found


def _add(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()
