"""Standard input and output that are full, or closed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.hami_dra.cli.test_files import CONVERTED, POD


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("convert", "-f"), 1),
        (("convert", "-o", "json", "-f"), 1),
        (("revert", "-f"), 1),
        (("explain",), 1),
        (("policy", "show", "--policy"), 1),
        (("diff", "-f"), 2),  # 1 says that something changes
        (("convert", "--help"), 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_output_that_cannot_be_written_is_told(
    arguments: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """Standard output can be a file on a full disk, and it can be closed."""
    file = tmp_path / "x.yaml"
    is_policy = arguments[0] == "policy"
    file.write_text("apiVersion: hami-dra.io/v1alpha1\nkind: Policy\n" if is_policy else POD)
    command = [sys.executable, "-m", "hami_dra.cli", *arguments, str(file)]

    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    closed = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command], capture_output=True, check=False
    )

    said = b"hami-dra: standard output: "
    assert (ran.returncode, ran.stderr) == (code, said + b"No space left on device\n")
    assert (closed.returncode, closed.stderr) == (code, said + b"Bad file descriptor\n")


def test_files_are_replaced_without_any_standard_output(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(POD)
    command = [sys.executable, "-m", "hami_dra.cli", "convert", "--in-place", "-f", str(file)]

    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&- >&-', "sh", *command], capture_output=True, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert CONVERTED in file.read_text()


def test_a_closed_standard_input_is_told() -> None:
    command = [sys.executable, "-m", "hami_dra.cli", "convert", "-f", "-"]

    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, check=False
    )

    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"-: standard input is closed" in ran.stderr
