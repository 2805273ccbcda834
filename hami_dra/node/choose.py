"""Choose where cards come from."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from hami_dra.node.backend import (
    Backend,
    BackendError,
    FindEdits,
    NoCards,
    SimulatedCards,
    real_cards,
)
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.inventory import Card
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
    # Loaded here alone: a node without cards needs no NVML.
    from hami_dra.node.nvml import NvmlCards  # noqa: PLC0415

    ways = ways_to_find(settings)
    return NvmlCards(lambda cards: first_that_works(ways, cards)[1], root=root)


def ways_to_find(settings: Settings) -> Mapping[CdiMode, FindEdits]:
    """Return how to find out what containers need to use real cards, in the order of trying."""
    # Loaded here alone: a node without cards needs no YAML parser.
    from hami_dra.node import edits  # noqa: PLC0415
    from hami_dra.node.driver_files import DriverRoot  # noqa: PLC0415
    from hami_dra.node.remembered import Remembered  # noqa: PLC0415

    driver = DriverRoot(settings.driver_root, settings.host_driver_root or settings.driver_root)
    ways: dict[CdiMode, FindEdits] = {
        CdiMode.TOOLKIT: Remembered(edits.from_toolkit),
        CdiMode.SPEC: Remembered(edits.from_host, files=edits.host_specs()),
        CdiMode.OWN: driver.edits,
    }
    mode = settings.cdi_mode
    return ways if mode is CdiMode.AUTO else {mode: ways[mode]}


def first_that_works(
    ways: Mapping[CdiMode, FindEdits], cards: Sequence[Card]
) -> tuple[CdiMode, NodeEdits]:
    """Try ways one after another; return the one that works, and what it found.

    Raises:
        BackendError: if none does, with what each said.
    """
    reasons: list[str] = []
    for mode, find in ways.items():
        try:
            return mode, find(cards)
        except BackendError as error:
            reasons.append(str(error))
    raise BackendError("; ".join(dict.fromkeys(reasons)))


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
