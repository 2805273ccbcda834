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

    driver = DriverRoot(settings.driver_root, settings.host_driver_root or settings.driver_root)
    ways: dict[CdiMode, list[FindEdits]] = {
        CdiMode.TOOLKIT: [edits.from_toolkit],
        CdiMode.SPEC: [edits.from_host],
        CdiMode.OWN: [driver.edits],
        CdiMode.AUTO: [edits.from_toolkit, edits.from_host, driver.edits],
    }
    return NvmlCards(edits.first_that_works(ways[settings.cdi_mode]), root=root)
