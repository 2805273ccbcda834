"""What the cards of this node say of themselves now: NVIDIA's through NVML, or simulated ones.

Each number is asked for by itself: what one card cannot tell hides no other number, nor another
card's.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from hami_dra.monitor.settings import Settings
from hami_dra.node.backend import SimulatedCards, real_cards
from hami_dra.node.settings import Devices


class CardsError(Exception):
    """The cards cannot be asked now; the text says why."""


@dataclass(frozen=True, slots=True)
class CardReading:
    """One card, and what it says now; None is what it does not tell.

    Attributes:
        uuid: NVIDIA's name for it; empty for a card that never said it.
        index: its number, as NVML counts.
        model: as NVML names it.
        memory_bytes: physical memory.
        used_bytes: memory that is in use, by whomever.
        busy_percent: of the last moments in which kernels ran.
        memory_busy_percent: of the last moments in which memory was read or written.
        is_simulated: whether it does not exist.
        is_partitioned: whether it is divided by MIG, and so not shared out.
        errors: what it failed to tell, by what was asked.
    """

    uuid: str
    index: int
    model: str
    memory_bytes: int | None = None
    used_bytes: int | None = None
    busy_percent: int | None = None
    memory_busy_percent: int | None = None
    is_simulated: bool = False
    is_partitioned: bool = False
    errors: tuple[tuple[str, str], ...] = ()


class Cards(Protocol):
    """The cards of one node."""

    def read(self) -> Sequence[CardReading]:
        """Return what each says now. Blocks, as long as a driver may.

        Raises:
            CardsError: if none can be asked.
        """


def choose(settings: Settings, *, root: Path = Path("/")) -> Cards:
    """Return the cards that the settings name.

    Raises:
        BackendError: if they cannot be on this node.
    """
    if settings.devices is Devices.SIMULATED:
        return Listed(SimulatedCards(settings.profile, settings.count, settings.name, root=root))
    return Whichever(root) if settings.devices is Devices.AUTO else NvmlCards()


class Listed:
    """Cards that are known and say nothing of themselves: simulated ones.

    Args:
        backend: lists them.
    """

    def __init__(self, backend: SimulatedCards) -> None:
        self._cards = tuple(
            CardReading(
                card.uuid,
                index,
                card.product_name,
                memory_bytes=card.memory_bytes,
                is_simulated=True,
            )
            for index, card in enumerate(backend.cards())
        )

    def read(self) -> Sequence[CardReading]:
        """Return what is known of them."""
        return self._cards


class Whichever:
    """NVIDIA's cards from the moment at which their driver is there, and none before.

    A driver may come long after the monitor, as where a pod of the node installs it.

    Args:
        root: of the file system in which it shows.
        library: NVML's binding; default is nvidia-ml-py.
    """

    def __init__(self, root: Path, library: Any = None) -> None:  # noqa: ANN401 - an untyped binding
        self._root = root
        self._library = library
        self._cards: NvmlCards | None = None

    def read(self) -> Sequence[CardReading]:
        """Return what each says now.

        Raises:
            CardsError: if NVML cannot be asked.
        """
        if self._cards is None:
            if real_cards(self._root) is None:
                return ()
            self._cards = NvmlCards(self._library)
        return self._cards.read()


class NvmlCards:
    """NVIDIA's cards; for one thread.

    Args:
        library: NVML's binding; default is nvidia-ml-py.
    """

    def __init__(self, library: Any = None) -> None:  # noqa: ANN401 - an untyped binding
        self._nvml = library or importlib.import_module("pynvml")
        self._is_open = False
        self._known: dict[int, CardReading] = {}

    def read(self) -> Sequence[CardReading]:
        """Return what each card says now; one that is lost keeps its name.

        Raises:
            CardsError: if NVML cannot be asked.
        """
        nvml = self._nvml
        try:
            if not self._is_open:
                nvml.nvmlInit()
                self._is_open = True
            count: int = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._close()
            raise CardsError(f"NVML does not answer: {error}") from error
        return tuple(self._card(index) for index in range(count))

    def _card(self, index: int) -> CardReading:
        """Read one card; its UUID is empty if it never said who it is."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
            if index not in self._known or self._known[index].uuid != uuid:
                self._known[index] = CardReading(uuid, index, _text(nvml.nvmlDeviceGetName(handle)))
        except nvml.NVMLError as error:
            known = self._known.get(index, CardReading("", index, ""))
            return replace(known, errors=(("card", str(error)),))
        return _Asked(nvml, handle, self._known[index]).reading()

    def _close(self) -> None:
        """Forget NVML, so that the next look begins anew: the driver may have been reloaded."""
        if self._is_open:
            self._is_open = False
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                return


class _Asked:
    """One card that answers, asked for one thing after the other."""

    def __init__(self, nvml: Any, handle: object, card: CardReading) -> None:  # noqa: ANN401
        self._nvml = nvml
        self._handle = handle
        self._card = card
        self._errors: list[tuple[str, str]] = []

    def reading(self) -> CardReading:
        memory = self._ask("memory", self._nvml.nvmlDeviceGetMemoryInfo)
        rates = self._ask("utilization", self._nvml.nvmlDeviceGetUtilizationRates)
        return replace(
            self._card,
            memory_bytes=int(memory.total) if memory else None,
            used_bytes=int(memory.used) if memory else None,
            busy_percent=int(rates.gpu) if rates else None,
            memory_busy_percent=int(rates.memory) if rates else None,
            is_partitioned=self._is_partitioned(),
            errors=tuple(self._errors),
        )

    def _is_partitioned(self) -> bool:
        try:
            current, _ = self._nvml.nvmlDeviceGetMigMode(self._handle)
        except self._nvml.NVMLError:  # as of all cards that cannot be
            return False
        return bool(current == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _ask(self, what: str, question: Callable[[object], Any]) -> Any:  # noqa: ANN401
        """Return an answer; None where there is none, as of partitioned cards."""
        try:
            return question(self._handle)
        except self._nvml.NVMLError_NotSupported:
            return None
        except self._nvml.NVMLError as error:
            self._errors.append((what, str(error)))
            return None


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
