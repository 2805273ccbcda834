"""Choose where cards come from."""

from pathlib import Path

from hami_dra.node.backend import Backend, FindEdits, NoCards, SimulatedCards, real_cards
from hami_dra.node.settings import CdiMode, Devices, Settings


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
