"""The script for real GPUs, as far as a machine without one can run it."""

import os
import subprocess
import sys

import pytest

from tests.native.conftest import NATIVE, Container

_GPU = NATIVE / "gpu"


def test_without_a_gpu_the_check_says_so_and_checks_nothing(container: Container) -> None:
    without_card = container.directory / "nvidia-smi"
    without_card.write_text("#!/bin/sh\nexit 9\n")
    without_card.chmod(0o755)

    ran = subprocess.run(
        ["/bin/bash", str(_GPU / "check.sh"), str(container.built.library)],
        env={"PATH": f"{container.directory}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "check.sh: found no GPU that nvidia-smi lists: nothing was checked\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["addresses", str(NATIVE / "src" / "hooks.def")], "all equal\n"),
        (["fill"], "1000 960\n"),
        (["steady"], "the same\n"),
        (
            ["rounding"],
            "1 byte: 0.5; 64 KiB: 64.0; array of 64 x 64 bytes: 64.0; array of 1000 x 100 bytes: 128.0\n",
        ),
    ],
)
def test_what_needs_no_kernel_is_measured_on_the_fake_driver(
    limited: Container, command: list[str], told: str
) -> None:
    process = limited.start([sys.executable, str(_GPU / "probe.py"), *command])

    assert process.communicate(timeout=60)[0] == told
