"""Leave a node as it was before, when nothing is remembered that a next agent would need."""

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path


def others(plugin_directory: Path) -> bool:
    """Tell whether another agent serves this node, as in a rolling update."""
    return any(plugin_directory.glob("dra*.sock"))


def remove_empty(plugin_directory: Path, run_directory: Path) -> None:
    """Remove what an agent keeps on its node beside claims; what is not its own stays.

    Args:
        plugin_directory: with the locks and the versions of the library.
        run_directory: with the directory of claims.
    """
    shutil.rmtree(plugin_directory / "lib", ignore_errors=True)
    for lock in ("claims.lock", "feed.lock", "agent.lock"):
        (plugin_directory / lock).unlink(missing_ok=True)
    _remove_directories((plugin_directory, run_directory / "claims", run_directory))


def _remove_directories(paths: Iterable[Path]) -> None:
    for path in paths:
        # Not empty, a mount of a container, or gone.
        with contextlib.suppress(OSError):
            path.rmdir()
