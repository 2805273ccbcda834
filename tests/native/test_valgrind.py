"""The library as it is preloaded, under valgrind's memcheck: no error, and nothing lost."""

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from tests.native import tools
from tests.native.conftest import Container, make
from tests.native.test_memory import PATHS, ROUND_TRIPS
from tests.native.test_view import NVML

_OPTIONS: Final = (
    "-q",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
)
_OURS: Final = re.compile(r"/(libvgpu\.so|libcuda\.so\.1|libnvidia-ml\.so\.1)$")
"""Where an error counts in a program that is not ours: in the library or the fake driver."""
_FUNCTION: Final = "def way(cuda, SIZE=100 * MIB):"


def _walk() -> str:
    """A text that goes every way to allocate, free, launch and look, up to the limit and beyond."""
    ways = [
        f"{PATHS[path].format(size=size)}" for path in PATHS for size in ("20 * MIB", "2000 * MIB")
    ]
    trips = [text.replace("\n        ", "\n    ") for text in ROUND_TRIPS.values()]
    functions = [f"{_FUNCTION}\n    {way}\nway(Cuda())\n" for way in (*ways, *trips)]
    launches = (
        "cuda = Cuda(1)\n"
        "for _ in range(200): cuda.launch()\n"
        "for suffix in ('', '_ptsz'): cuda.launch_graph(cuda.graph(kernels=5), suffix)\n"
        "thread = threading.Thread(target=lambda: (cuda.use(1), [cuda.launch() for _ in range(200)]))\n"
        "thread.start(); thread.join()\n"
    )
    looks = (
        "memory(0); memory2(1)\n"
        "for version in ('', '_v2', '_v3'): processes('nvmlDeviceGetComputeRunningProcesses' + version)\n"
        "if not os.fork(): Cuda(); os._exit(0)\n"
        "os.wait(); tell('done')\n"
    )
    return "".join((*functions, launches, NVML, looks))


def _errors_of_ours(report: Path) -> list[str]:
    """Return the kinds and places of the errors in which the library or the fake driver had a part."""
    found = []
    for error in ET.parse(report).getroot().iter("error"):  # noqa: S314 - valgrind wrote it
        frames = [(f.findtext("obj", ""), f.findtext("fn", "?")) for f in error.iter("frame")]
        if any(_OURS.search(library) for library, _ in frames):
            found.append(f"{error.findtext('kind')}: {' < '.join(name for _, name in frames)}")
    return found


def test_a_program_that_goes_every_way_shows_no_error(limited: Container) -> None:
    report = limited.directory / "report.xml"
    options = (*_OPTIONS, "--xml=yes", f"--xml-file={report}", "--child-silent-after-fork=yes")
    command = tools.under_valgrind(options, limited.python(_walk()), limited.built.fake)

    told = limited.run(command, CUDA_DEVICE_SM_LIMIT="90")

    assert told == "done"
    assert _errors_of_ours(report) == []


def test_threads_show_no_error(limited: Container) -> None:
    make("build/threads")
    program = [str(limited.built.directory / "threads")]
    command = tools.under_valgrind((*_OPTIONS, "--error-exitcode=9"), program, limited.built.fake)

    assert limited.run(command) == 0
    assert [line for line in limited.said.splitlines() if line.startswith("==")] == []
