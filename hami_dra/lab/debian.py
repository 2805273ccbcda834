"""Have programs and libraries of Debian without installing them.

Packages are unpacked below a folder together with all that they need, also those of another
architecture. Only apt-get and dpkg-deb of the host are used, with lists of their own: what the host
has installed plays no part, and root is not needed.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hami_dra.lab.failure import LabError

_OPTIONS: Final = (
    "APT::Install-Recommends=false",
    "APT::Sandbox::User=",  # the default one reads no temporary folder
    "Acquire::Languages=none",
    "Debug::NoLocking=true",
)


def unpack(packages: Sequence[str], folder: Path) -> None:
    """Unpack packages and all that they need, each below a folder of its architecture.

    Args:
        packages: names of packages, those of another architecture as `name:arm64`.
        folder: where `amd64` and `arm64` come into being; what is for all is in both.

    Raises:
        LabError: if apt-get finds or fetches them not; the message holds what it said.
    """
    if not shutil.which("apt-get"):
        raise LabError(
            f"found no apt-get, expected a Debian; install by hand: {' '.join(packages)}"
        )
    with tempfile.TemporaryDirectory() as name:
        host = _run(["dpkg", "--print-architecture"]).strip()
        architectures = sorted({host, *(p.partition(":")[2] or host for p in packages)})
        apt = _apt(Path(name), host, architectures)
        _run([*apt, "update"])
        _run([*apt, "install", "--yes", "--download-only", *packages])
        for package in sorted(Path(name).rglob("*.deb")):
            architecture = package.stem.rsplit("_", 1)[1]
            for one in architectures if architecture == "all" else [architecture]:
                (folder / one).mkdir(parents=True, exist_ok=True)
                _run(["dpkg-deb", "--extract", str(package), str(folder / one)])


def libraries(root: Path) -> list[Path]:
    """Return the folders of shared libraries of one unpacked architecture."""
    patterns = ("lib/*-linux-gnu", "usr/lib/*-linux-gnu")
    return [path for pattern in patterns for path in root.glob(pattern)]


def command(root: Path, program: str) -> list[str]:
    """Return how to call an unpacked program: by its own loader, with its own libraries."""
    search = libraries(root)
    for loader in (path for folder in search for path in folder.glob("ld-linux-*.so.*")):
        return [str(loader), "--library-path", ":".join(map(str, search)), str(root / program)]
    raise LabError(f"{root}: found no loader, expected that of the C library")


def _apt(folder: Path, host: str, architectures: Sequence[str]) -> list[str]:
    for name in ("state/lists/partial", "cache/archives/partial", "log"):
        (folder / name).mkdir(parents=True)
    status = folder / "state" / "status"
    status.touch()
    directories = (
        f"Dir::State={folder}/state",
        f"Dir::State::status={status}",
        f"Dir::Cache={folder}/cache",
        f"Dir::Log={folder}/log",
    )
    own = (f"APT::Architecture={host}", f"APT::Architectures={','.join(architectures)}")
    return ["apt-get", "-q", *(f"-o{option}" for option in (*_OPTIONS, *directories, *own))]


def _run(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(
            f"{argv[0]}: exit code {done.returncode}, expected packages of Debian; it said:\n"
            f"{done.stdout}{done.stderr}"
        )
    return done.stdout
