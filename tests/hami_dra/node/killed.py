"""An agent that kills itself before a change of the disk: `killed DIRECTORY NUMBER < claim`."""

import json
import os
import signal
import sys
from pathlib import Path

from tests.hami_dra.node.claims import Disk


def main() -> None:
    """Prepare and unprepare until the numbered change."""
    left = iter(range(int(sys.argv[2])))

    def step(_: str) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    claims = Disk(Path(sys.argv[1])).start(step)
    wanted = json.load(sys.stdin)
    while True:
        claims.prepare(wanted)
        claims.unprepare(wanted["metadata"]["uid"])


if __name__ == "__main__":
    main()
