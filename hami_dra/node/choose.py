"""Choose where cards come from."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from hami_dra.node.backend import Backend, FindEdits, NoCards, SimulatedCards, real_cards
from hami_dra.node.settings import CdiMode, Devices, Settings

_LOOK_S: Final = 30.0

_log = logging.getLogger(__name__)


def choose_backend(settings: Settings, *, root: Path = Path("/")) -> Backend:
    """Return the backend that the settings ask for.

    Args:
        settings: how the agent runs.
        root: of the file system in which NVIDIA's driver shows.

    Raises:
        BackendError: if it cannot work on this node.
    """
    if settings.devices is Devices.SIMULATED:
        return SimulatedCards(settings.profile, settings.count, settings.name, root=root)
    if settings.devices is Devices.AUTO and real_cards(root) is None:
        return NoCards()
    # Loaded here alone: a node without cards needs neither NVML nor a YAML parser.
    from hami_dra.node import edits  # noqa: PLC0415
    from hami_dra.node.driver_files import DriverRoot  # noqa: PLC0415
    from hami_dra.node.nvml import NvmlCards  # noqa: PLC0415
    from hami_dra.node.remembered import Remembered  # noqa: PLC0415

    driver = DriverRoot(settings.driver_root, settings.host_driver_root or settings.driver_root)
    toolkit = Remembered(edits.from_toolkit)
    spec = Remembered(edits.from_host, files=edits.host_specs())
    ways: dict[CdiMode, list[FindEdits]] = {
        CdiMode.TOOLKIT: [toolkit],
        CdiMode.SPEC: [spec],
        CdiMode.OWN: [driver.edits],
        CdiMode.AUTO: [toolkit, spec, driver.edits],
    }
    return NvmlCards(edits.first_that_works(ways[settings.cdi_mode]), root=root)


@asynccontextmanager
async def ending_for_a_driver(
    stop: asyncio.Event, *, root: Path = Path("/"), look_s: float = _LOOK_S
) -> AsyncIterator[None]:
    """End an agent that began without NVIDIA's driver once the driver is there.

    It may come long after the agent, as where a pod of the node installs it, and only a container
    that starts then is given its library: the kubelet starts another one.

    Args:
        stop: set when the driver has come.
        root: of the file system in which it shows.
        look_s: how often to look.
    """
    if real_cards(root) is not None:
        yield
        return
    looking = asyncio.create_task(_stop_for_a_driver(stop, root, look_s))
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def _stop_for_a_driver(stop: asyncio.Event, root: Path, look_s: float) -> None:
    while True:
        await asyncio.sleep(look_s)
        if (sign := real_cards(root)) is not None:
            break
    _log.warning("found %s: NVIDIA's driver has come, so this ends to be started anew", sign)
    stop.set()
