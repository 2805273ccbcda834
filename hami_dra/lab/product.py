"""The product's image, built from the wheel as its Dockerfile says, without Docker or registry.

`python -m hami_dra.lab.product` builds it, unless it is in the user's cache, and prints its path.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import hami_dra
from hami_dra.lab import dockerfile, image
from hami_dra.lab.cache import Cache, cache_key, user_cache
from hami_dra.lab.dockerfile import Dockerfile
from hami_dra.lab.failure import LabError

NAME: Final = f"hami-dra:{hami_dra.__version__}"
"""What the manifests call it."""

STORED_NAME: Final = f"docker.io/library/{NAME}"
"""What a container runtime makes of that name."""

_ARCHIVE: Final = "image.tar"
_PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_STDLIB: Final = f"usr/local/lib/{_PYTHON}"
# Parts of the standard library that no service needs.
_LEFT_OUT: Final = (
    *("__pycache__", "config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3"),
    *("pydoc_data", "site-packages", "test", "tests", "tkinter", "turtledemo"),
)
# What an installer notes for itself, with times and paths of the moment.
_NOTES: Final = ("RECORD", "direct_url.json", "uv_cache.json")
_ACCOUNTS: Final = {
    "etc/passwd": b"root:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}


def product_image() -> Path:
    """Return an archive for `ctr images import`, built now unless it is in the user's cache."""
    recipe = Dockerfile.read(Path(hami_dra.__file__).parents[1])
    key = cache_key(_inputs(recipe))
    return (
        Cache(user_cache("image")).folder("product", key, lambda to: _fill(recipe, to)) / _ARCHIVE
    )


def _inputs(recipe: Dockerfile) -> Mapping[str, bytes]:
    """Collect all that decides what the image holds."""
    ways = [Path(str(each.__file__)) for each in (dockerfile, image, sys.modules[__name__])]
    sources = [recipe.checkout / name for name in recipe.copied()]
    files = [file for each in sources for file in (each.rglob("*") if each.is_dir() else (each,))]
    found = {
        str(file.relative_to(recipe.checkout)): file.read_bytes()
        for file in (*files, *ways)
        if file.is_file() and "__pycache__" not in file.parts
    }
    return {**found, "steps": repr(recipe.steps).encode(), "python": sys.version.encode()}


def _fill(recipe: Dockerfile, folder: Path) -> None:
    print("building the product's image (first build: 1-2 min)", file=sys.stderr)
    # Its path stands in the first lines of scripts, which cannot be long.
    with tempfile.TemporaryDirectory() as directory:
        root, scratch = Path(directory) / "root", Path(directory) / "scratch"
        for path in (root, scratch):
            path.mkdir()
        target = root / dockerfile.TARGET.lstrip("/")
        recipe.build(target, scratch)
        _move_environment(target)
        ignored = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(Path(os.__file__).parent, root / _STDLIB, ignore=ignored)
        _compile(root)
        image.write_archive(folder / _ARCHIVE, STORED_NAME, _layer(root), recipe.config())


def _move_environment(target: Path) -> None:
    """Make an environment that was built here one that works in its place in the image."""
    for note in [path for name in _NOTES for path in target.rglob(f"*.dist-info/{name}")]:
        note.unlink()
    programs = target / "bin"
    for path in programs.iterdir():
        if path.is_symlink() or path.name.lower().startswith("activate"):
            path.unlink()
        else:
            path.write_text(path.read_text().replace(str(target), dockerfile.TARGET))
    (programs / "python").symlink_to(f"/usr/local/bin/{_PYTHON}")
    (programs / "python3").symlink_to("python")
    version = ".".join(str(part) for part in sys.version_info[:3])
    (target / "pyvenv.cfg").write_text(
        f"home = /usr/local/bin\ninclude-system-site-packages = false\nversion = {version}\n"
    )


def _compile(root: Path) -> None:
    """Compile all modules, since nothing can be written where they run.

    By the content of a file, not by its age: files in an image have none.
    """
    for path in root.rglob("__pycache__"):
        shutil.rmtree(path)
    argv = [
        *(sys.executable, "-m", "compileall", "-q", "-j0"),
        *("--invalidation-mode", "unchecked-hash", "-s", str(root), "-p", "/", str(root)),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"compileall: {done.stdout}{done.stderr}")


def _layer(root: Path) -> image.Layer:
    layer = image.Layer()
    layer.add_tree(root)
    layer.add_programs({f"usr/local/bin/{_PYTHON}": Path(sys.executable).resolve()})
    loaded = image.libraries(sorted(path for path in root.rglob("*.so*") if path.is_file()))
    for library in loaded:
        # Those that packages bring along are there already.
        if not Path(library).is_relative_to(root):
            layer.add(library, Path(library), mode=0o755)
    for name, content in _ACCOUNTS.items():
        layer.add(name, content)
    return layer


if __name__ == "__main__":
    print(product_image())
