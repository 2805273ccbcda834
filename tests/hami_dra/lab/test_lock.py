"""One process at a time; the next one says that it waits, and gets its turn."""

import subprocess
import sys
from pathlib import Path

from hami_dra.lab.lock import is_locked, locked

SCRIPT = """
import sys
from pathlib import Path
from hami_dra.lab.lock import locked
with locked(Path(sys.argv[1]), "waiting"):
    print("has it")
"""


def test_the_next_process_says_that_it_waits_and_gets_its_turn(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    assert not is_locked(path)
    argv = [sys.executable, "-c", SCRIPT, str(path)]
    with locked(path, "nobody waits"):
        assert is_locked(path)
        other = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert other.stderr is not None
        assert other.stderr.readline() == "waiting\n"

    assert other.communicate(timeout=30) == ("has it\n", "")
    assert not is_locked(path)
