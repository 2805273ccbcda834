"""Find the two prebuilt tools that the lab needs: `go` and `kubectl`."""

import shutil
import sys
from pathlib import Path

from hami_dra.lab.failure import LabError


def find(tool: str, *, environment: Path | None = None) -> Path:
    """Find a tool: first beside the running Python, where `make dev` puts it, then on PATH.

    Args:
        tool: the command, such as `go`.
        environment: the folder to look into first; default is that of the running Python.
    """
    first = environment or Path(sys.executable).parent
    for path in (str(first), None):
        found = shutil.which(tool, path=path)
        if found:
            return Path(found)
    raise LabError(
        f"{tool}: found neither in {first} nor on PATH, expected one of them;"
        " run `make dev`, or install the extra with pip: hami-dra[lab]"
    )
