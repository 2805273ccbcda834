"""The tools of the native tests: from PATH, or unpacked from Debian's packages into the user's cache."""

import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.lab import debian
from hami_dra.lab.cache import Cache, cache_key, user_cache

HOST: Final = platform.machine()
FOREIGN: Final = "aarch64"
"""The other architecture that we ship for, where this one is x86-64."""
_DEBIAN: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Machine:
    """How programs of one architecture run.

    Attributes:
        name: as the compiler calls it.
        runner: the command that runs a program of it; nothing for this machine's own.
        python: a Python of it.
    """

    name: str
    runner: tuple[str, ...]
    python: str

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to run it with: those of the loader are the emulated one's alone."""
        if not self.runner:
            return dict(variables)
        loaders = {name: text for name, text in variables.items() if name.startswith("LD_")}
        rest = {name: text for name, text in variables.items() if name not in loaders}
        return rest | {"QEMU_SET_ENV": ",".join(f"{n}={text}" for n, text in loaders.items())}


def foreign(page_bytes: int = 4096) -> Machine:
    """Return an emulated machine of the other architecture, with its own C library and Python."""
    root = _unpacked("python", f"python3:{_DEBIAN[FOREIGN]}") / _DEBIAN[FOREIGN]
    qemu = f"qemu-{FOREIGN}"
    runner = [*_found_or_unpacked(qemu, "qemu-user"), "-L", str(root), "-p", str(page_bytes)]
    return Machine(FOREIGN, tuple(runner), str(root / "usr" / "bin" / "python3"))


def under_valgrind(options: Sequence[str], program: Sequence[str], libraries: Path) -> list[str]:
    """Return the command that runs a program, which finds libraries in a folder, under valgrind.

    What is unpacked runs the program on an unpacked C library too: valgrind reads the C library's
    symbols, which are in a package of exactly the same version.
    """
    if shutil.which("valgrind"):
        return ["valgrind", *options, *program]
    root = _unpacked("valgrind", "valgrind", _lay_symbols_beside) / _DEBIAN[HOST]
    tools = root / "usr" / "libexec" / "valgrind"
    loader, option, search, _ = debian.command(root, "")
    return [
        *("env", f"VALGRIND_LIB={tools}"),
        *(*debian.command(root, "usr/bin/valgrind.bin"), *options),
        *(loader, option, f"{libraries}:{search}", *program),
    ]


def fuzzer() -> list[Path]:
    """Return the runtime of libFuzzer, and the library of C++ that it is linked with."""
    root = _unpacked("fuzzer", "libclang-rt-dev") / _DEBIAN[HOST]
    [runtime] = root.rglob(f"libclang_rt.fuzzer-{HOST}.a")
    [library] = [path for at in debian.libraries(root) for path in at.glob("libstdc++.so.6")]
    return [runtime, library]


def _found_or_unpacked(program: str, package: str) -> list[str]:
    if found := shutil.which(program):
        return [found]
    root = _unpacked(program, package) / _DEBIAN[HOST]
    return debian.command(root, f"usr/bin/{program}")


def _unpacked(name: str, package: str, finish: Callable[[Path], None] | None = None) -> Path:
    release = Path("/etc/os-release")
    key = cache_key({package: release.read_bytes() if release.exists() else b""})

    def fill(folder: Path) -> None:
        debian.unpack([package], folder)
        if finish:
            finish(folder / _DEBIAN[HOST])

    return Cache(user_cache("native")).folder(name, key, fill)


def _lay_symbols_beside(root: Path) -> None:
    """Symbols are looked for by name beside their library, or where only a host has them."""
    for folder in debian.libraries(root):
        for symbols in root.glob("usr/lib/debug/.build-id/*/*.debug"):
            up = Path(*[".."] * len(folder.relative_to(root).parts))
            (folder / symbols.name).symlink_to(up / symbols.relative_to(root))
