"""Look at a node as the agent would, and say what is missing and how to mend it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hami_dra.node import sockets
from hami_dra.node.backend import BackendError
from hami_dra.node.choose import choose_backend, first_that_works, ways_to_find
from hami_dra.node.devices import WHOLE, device_name
from hami_dra.node.inventory import Card
from hami_dra.node.node_state import HANGS_S
from hami_dra.node.settings import Settings
from hami_dra.patience import HangsError, Patience

_OLDEST_DRIVER: Final = 440
_WELL_KNOWN: Final = (Path("/etc/cdi"), Path("/var/run/cdi"), Path("/run/cdi"))


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as the agent needs it.

    Attributes:
        what: what was found and what was expected.
        fix: what to do.
    """

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What the agent would do on this node.

    Attributes:
        source: where cards come from.
        driver: the DRA driver's name.
        cards: what would be published.
        slots: the slots of one tenant.
        cdi_directory: where CDI files would be written.
        cdi_mode: how it is found out what containers need.
        library: the native library, which enforces limits; None for none.
        problems: what is missing.
    """

    source: str
    driver: str
    cards: tuple[Card, ...]
    slots: int
    cdi_directory: Path
    cdi_mode: str
    library: Path | None
    problems: tuple[Problem, ...]

    @property
    def is_well(self) -> bool:
        """Tell whether nothing is missing."""
        return not self.problems


def findings(settings: Settings, *, root: Path = Path("/")) -> Findings:
    """Look at this node; changes nothing and asks no API server."""
    source, cards, mode = "none", tuple[Card, ...](), "none needed"
    problems: list[Problem] = []
    try:
        backend = choose_backend(settings, root=root)
        source = backend.name
        cards = Patience(lambda: tuple(backend.cards()), HANGS_S).ask()
        if source == "nvml":
            mode, ways = settings.cdi_mode.value, ways_to_find(settings)
            way, _ = Patience(lambda: first_that_works(ways, cards), HANGS_S).ask()
            mode = way.value if way == mode else f"{way.value} ({mode})"
    except BackendError as error:
        problems.append(Problem(str(error), "do what this says, and check again"))
    except HangsError as error:
        problems.append(Problem(f"the driver hangs: {error}", "reboot the node if that lasts"))
    return Findings(
        source=source,
        driver=settings.driver,
        cards=cards,
        slots=WHOLE // settings.split_count,
        cdi_directory=settings.cdi_directory,
        cdi_mode=mode,
        library=settings.library,
        problems=(
            *problems,
            *_library_problems(settings),
            *_driver_problems(cards),
            *_directory_problems(settings),
            *_runtime_problems(settings),
            *_socket_problems(settings),
        ),
    )


def render(found: Findings) -> str:
    """Write findings for people."""
    lines = [
        f"cards: {found.source}, {len(found.cards)} found",
        *(
            f"  {device_name(card.uuid)}  {card.product_name}  {card.memory_mib}Mi"
            f"  cores {WHOLE}  slots {WHOLE} ({found.slots} a tenant)"
            for card in found.cards
        ),
        f"driver: {found.driver}",
        f"CDI files: {found.cdi_directory}",
        f"container edits: {found.cdi_mode}",
        f"native library: {found.library or 'none, so limits are told and not enforced'}",
    ]
    for problem in found.problems:
        lines += [f"problem: {problem.what}", f"  fix: {problem.fix}"]
    return "\n".join([*lines, "all is well" if found.is_well else "not ready"])


def _driver_problems(cards: tuple[Card, ...]) -> Iterator[Problem]:
    version = next((card.driver_version for card in cards), "")
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < _OLDEST_DRIVER:
        yield Problem(
            f"found NVIDIA's driver {version}, expected {_OLDEST_DRIVER} or newer",
            "update the driver on the node",
        )


def _library_problems(settings: Settings) -> Iterator[Problem]:
    if settings.library is not None and not os.access(settings.library, os.R_OK):
        yield Problem(
            f"found no readable file {settings.library}, expected the native library",
            "name libvgpu.so with --library, or none with HAMI_DRA_NODE_LIBRARY set to nothing",
        )


def _runtime_problems(settings: Settings) -> Iterator[Problem]:
    if settings.cdi_directory not in _WELL_KNOWN:
        known = ", ".join(str(path) for path in _WELL_KNOWN)
        yield Problem(
            f"found the CDI directory {settings.cdi_directory}, expected one where every runtime"
            f" looks: {known}",
            "use one of these, or add it to the runtime's configuration: cdi_spec_dirs",
        )


def _directory_problems(settings: Settings) -> Iterator[Problem]:
    try:
        if not settings.registry.is_dir():
            yield Problem(
                f"found no directory {settings.registry}, expected the kubelet's plugin registry",
                "name the kubelet's root with --kubelet-directory (its flag --root-dir), and mount"
                " it into the agent's pod under the same path",
            )
    except PermissionError:
        yield Problem(
            f"found no right to look at {settings.registry}, expected the kubelet's plugin"
            " registry",
            "run this as root, as the agent runs",
        )
    wanted = {
        "plugins": settings.plugin_directory,
        "CDI files": settings.cdi_directory,
        "files of claims": settings.run_directory,
    }
    for purpose, path in wanted.items():
        nearest = next(each for each in (path, *path.parents) if os.access(each, os.F_OK))
        if not os.access(nearest, os.W_OK):
            yield Problem(
                f"found {nearest} not writable, expected a place for {purpose} at {path}",
                "run the agent as root, and mount the directory into its pod without readOnly",
            )


def _socket_problems(settings: Settings) -> Iterator[Problem]:
    try:
        sockets.choose(
            settings.registry, settings.plugin_directory, settings.driver, settings.instance
        )
    except sockets.SocketPathError as error:
        yield Problem(str(error), "use a kubelet directory with a shorter path")
