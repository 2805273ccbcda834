"""Have what runs containers: containerd, its shim, its network plugins, and runc.

All but runc are built from their Go modules (`tests/node/containerd`), in seconds, and cached under
a key of all inputs. runc is Debian's, from PATH or unpacked beside the others without installing.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.lab import build, debian, progress, toolchain
from hami_dra.lab.cache import Cache, cache_key, user_cache
from hami_dra.lab.failure import LabError

_PLUGINS: Final = "github.com/containernetworking/plugins/plugins"
# Program and the package it is built from. The shim must be a program of its own: it calls itself
# again by its path and loads every plugin that is linked into it.
_PROGRAMS: Final = {
    "containerd": ".",
    "containerd-shim-runc-v2": "./shim",
    "ptp": f"{_PLUGINS}/main/ptp",
    "host-local": f"{_PLUGINS}/ipam/host-local",
}
# Storage drivers that need C libraries or kernel modules, and that nothing here uses.
_TAGS: Final = "no_btrfs no_devmapper no_zfs"
_FLAGS: Final = "-s -w"
_RUNC: Final = "runc"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A folder with `containerd`, `ctr`, the shim, `ptp`, `host-local` and `runc`."""

    directory: Path

    def program(self, name: str) -> Path:
        """Return the path of a program."""
        return self.directory / name


def runtime() -> Runtime:
    """Return what runs containers, built now unless it is in the user's cache."""
    source = _source_directory()
    go = toolchain.find("go")
    inputs = {
        str(file.relative_to(source)): file.read_bytes()
        for file in sorted(source.rglob("*"))
        if file.suffix in {".go", ".mod", ".sum"}
    }
    key = cache_key({**inputs, "go": _go_version(go), "flags": f"{_TAGS}{_FLAGS}".encode()})

    def fill(folder: Path) -> None:
        for name, package in _PROGRAMS.items():
            _compile(folder / name, package, source, go)
        (folder / "ctr").symlink_to("containerd")
        _have_runc(folder)

    return Runtime(Cache(user_cache("node")).folder("runtime", key, fill))


def _source_directory() -> Path:
    source = Path(__file__).parents[2] / "tests" / "node" / "containerd"
    if not (source / "go.mod").is_file():
        raise LabError(f"{source}: found no go.mod; run from a checkout")
    return source


def _compile(output: Path, package: str, source: Path, go: Path) -> None:
    argv = [
        *(str(go), "build", "-trimpath", "-tags", _TAGS, "-ldflags", _FLAGS),
        *("-o", str(output), package),
    ]
    text = f"building {output.name} (first build: 1-5 min)"
    code, said = progress.run(argv, text=text, cwd=source, env=build.go_environment())
    if code:
        raise LabError(f"go build: exit code {code}, expected {output.name}; it said:\n{said}")


def _have_runc(folder: Path) -> None:
    """Link the system's runc, or unpack Debian's with the library that it needs."""
    if found := shutil.which(_RUNC):
        (folder / _RUNC).symlink_to(found)
        return
    unpacked = folder / "debian"
    debian.unpack([_RUNC], unpacked)
    # That library alone: runc starts itself again, and so needs the host's loader and C library.
    [library] = unpacked.rglob("libseccomp.so.2")
    [program] = unpacked.rglob(f"sbin/{_RUNC}")
    (folder / "lib").mkdir()
    (folder / "lib" / library.name).symlink_to(Path("..") / library.relative_to(folder))
    launcher = folder / _RUNC
    launcher.write_text(
        "#!/bin/sh\n"
        'here=$(dirname "$(readlink -f "$0")")\n'
        'export LD_LIBRARY_PATH="$here/lib"\n'
        f'exec "$here/{program.relative_to(folder)}" "$@"\n'
    )
    launcher.chmod(0o755)


def _go_version(go: Path) -> bytes:
    return subprocess.run(
        [go, "env", "GOVERSION", "GOOS", "GOARCH"],
        env={**os.environ, **build.go_environment()},
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
