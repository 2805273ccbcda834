"""The library and the fake driver under the compiler's sanitizers, where the compiler has them."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from hami_dra.node import limit_files
from hami_dra.node.limits import Control, DeviceLimit
from tests.native.conftest import NATIVE, UUIDS, compiler

_SANITIZERS = {"address": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}


def _available() -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        text = Path(directory) / "empty.c"
        text.write_text("int main(void) { return 0; }\n")
        return [
            name
            for name, flag in _SANITIZERS.items()
            if not subprocess.run(
                [*compiler(), flag, "-o", f"{directory}/empty", str(text)],
                capture_output=True,
                check=False,
                timeout=120,
            ).returncode
        ]


@pytest.mark.parametrize("name", _available())
def test_threads_on_two_cards_show_nothing_to_a_sanitizer(name: str, tmp_path: Path) -> None:
    build = NATIVE / "build" / name
    link = "-shared -pthread -ldl -Wl,-soname,libvgpu.so -Wl,--version-script=$(BUILD)/exports.map"
    make = ["make", "-s", "-C", str(NATIVE), f"BUILD={build}", f"SANITIZE={_SANITIZERS[name]}"]
    subprocess.run([*make, f"CC={' '.join(compiler())}", f"LINK={link}", "sanitized"], check=True)
    claim = tmp_path / "claims" / "one"
    claim.mkdir(parents=True)
    limits = tuple(DeviceLimit(uuid, 100 << 20, core_percent=90) for uuid in UUIDS)
    limit_files.create(claim, Control(limits))

    ran = subprocess.run(
        [build / "threads"],
        env={"VGPU_CLAIMS_DIRECTORY": str(tmp_path / "claims"), "LIBCUDA_LOG_LEVEL": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "0\n", "")
