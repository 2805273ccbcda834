"""Choose where cards come from."""

from pathlib import Path

from hami_dra.node.backend import Backend, BackendError, NoCards, SimulatedCards, real_cards
from hami_dra.node.settings import Devices, Settings


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
    raise BackendError(
        "found NVIDIA's driver, and this release does not read its cards yet; it serves simulated"
        " ones on nodes without it"
    )
