"""NVIDIA's binding of NVML with made-up cards: the functions that the agent calls."""

import importlib
import queue
import threading
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

pynvml: Any = importlib.import_module("pynvml")
"""The real binding, which has no types."""


@dataclass
class FakeCard:
    """A card that tests can break; `refuses` holds errors by what is asked."""

    uuid: str
    bus: int
    minor: int
    total: int = 81920 * 2**20
    in_use: int = 0
    busy: tuple[int, int] = (0, 0)
    refuses: dict[str, int] = field(default_factory=dict)
    is_lost: bool = False
    mig: int = 0
    recovery_action: int = 0
    no_recovery_field: bool = False
    used: dict[int, int] = field(default_factory=dict)
    samples: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass
class FakeNvml:
    """Stands in for the module `pynvml`; constants and errors are the real module's.

    Attributes:
        found: the cards.
        broken: the error that every call raises, if any.
        events: errors of cards, as (card, XID).
        opened: how often it was opened.
        made: sets of events that were made.
        sets: of these, the ones that were not freed.
        driver: version.
        hangs: while set, nothing is answered.
        cut: how often it was shut down under a call that waited.
    """

    found: list[FakeCard]
    broken: type[Exception] | None = None
    events: "queue.Queue[tuple[FakeCard, int] | None]" = field(default_factory=queue.Queue)
    opened: int = 0
    made: int = 0
    sets: int = 0
    waiting: int = 0
    cut: int = 0
    hangs: threading.Event = field(default_factory=threading.Event)
    driver: str = "535.54.03"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - constants and errors
        if name.startswith("nvml") and not name.startswith("nvmlEventType"):
            raise AttributeError(name)
        return getattr(pynvml, name)

    def _answer(self) -> None:
        while self.hangs.is_set():
            time.sleep(0.01)
        if self.broken is not None:
            raise self.broken

    def nvmlInit(self) -> None:  # noqa: N802 - the library's names, here and below
        """Open."""
        self._answer()
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Close."""
        self.cut += self.waiting

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Count."""
        self._answer()
        return len(self.found)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeCard:  # noqa: N802
        """Find by number."""
        return self._reachable(self.found[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeCard:  # noqa: N802
        """Find by UUID."""
        self._answer()
        [card] = [each for each in self.found if each.uuid == uuid]
        return self._reachable(card)

    def _reachable(self, card: FakeCard) -> FakeCard:
        if card.is_lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return card

    def nvmlDeviceGetUUID(self, card: FakeCard) -> str:  # noqa: N802
        """Name."""
        return card.uuid

    def nvmlDeviceGetMinorNumber(self, card: FakeCard) -> int:  # noqa: N802
        """Number of the device node."""
        return card.minor

    def nvmlDeviceGetName(self, _: FakeCard) -> bytes:  # noqa: N802
        """Model; older bindings answer in bytes."""
        return b"NVIDIA A100-SXM4-80GB"

    def nvmlDeviceGetBrand(self, _: FakeCard) -> int:  # noqa: N802
        """Brand."""
        return int(pynvml.NVML_BRAND_NVIDIA)

    def nvmlDeviceGetArchitecture(self, _: FakeCard) -> int:  # noqa: N802
        """Architecture."""
        return int(pynvml.NVML_DEVICE_ARCH_AMPERE)

    def nvmlDeviceGetMemoryInfo(self, card: FakeCard) -> SimpleNamespace:  # noqa: N802
        """Memory."""
        self._refuse(card, "memory")
        return SimpleNamespace(total=card.total, used=card.in_use)

    def nvmlDeviceGetUtilizationRates(self, card: FakeCard) -> SimpleNamespace:  # noqa: N802
        """Compute and memory, in percent of the last moments."""
        self._refuse(card, "utilization")
        gpu, memory = card.busy
        return SimpleNamespace(gpu=gpu, memory=memory)

    @staticmethod
    def _refuse(card: FakeCard, what: str) -> None:
        if what in card.refuses:
            raise pynvml.NVMLError(card.refuses[what])

    def nvmlDeviceGetComputeRunningProcesses(self, card: FakeCard) -> list[Any]:  # noqa: N802
        """Processes with a context, and what they hold; the binding asks as since driver 510."""
        self._answer()
        if int(self.driver.partition(".")[0]) < 510:
            raise pynvml.NVMLLibraryMismatchError("Unversioned function called")
        return self.nvmlDeviceGetComputeRunningProcesses_v2(card)

    def nvmlDeviceGetComputeRunningProcesses_v2(self, card: FakeCard) -> list[Any]:  # noqa: N802
        """Answer as before driver 510."""
        self._refuse(card, "processes")
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card.used.items()]

    def nvmlDeviceGetProcessUtilization(self, card: FakeCard, since: int) -> list[Any]:  # noqa: N802
        """Samples as (microsecond, process, percent)."""
        found = [
            SimpleNamespace(timeStamp=end, pid=pid, smUtil=percent)
            for end, pid, percent in card.samples
            if end > since
        ]
        if not found:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found

    def nvmlDeviceGetCudaComputeCapability(self, _: FakeCard) -> tuple[int, int]:  # noqa: N802
        """Compute capability."""
        return 8, 0

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        """Version of the driver."""
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        """Version of CUDA."""
        return 12080

    def nvmlDeviceGetPciInfo(self, card: FakeCard) -> SimpleNamespace:  # noqa: N802
        """Place on the bus."""
        return SimpleNamespace(domain=0, bus=card.bus, device=0)

    def nvmlDeviceGetMigMode(self, card: FakeCard) -> tuple[int, int]:  # noqa: N802
        """Whether it is partitioned."""
        return card.mig, card.mig

    def nvmlDeviceGetFieldValues(  # noqa: N802
        self, card: FakeCard, _: list[int]
    ) -> list[SimpleNamespace]:
        """What the driver asks for."""
        if card.no_recovery_field:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        value = SimpleNamespace(uiVal=card.recovery_action)
        return [SimpleNamespace(nvmlReturn=0, value=value)]

    def nvmlEventSetCreate(self) -> set[str]:  # noqa: N802
        """Make a set of events."""
        self.made += 1
        self.sets += 1
        return set()

    def nvmlEventSetFree(self, _: set[str]) -> None:  # noqa: N802
        """Free a set of events."""
        self.sets -= 1

    def nvmlDeviceRegisterEvents(self, card: FakeCard, _: int, events: set[str]) -> None:  # noqa: N802
        """Listen."""
        self._refuse(card, "events")
        events.add(card.uuid)

    def nvmlEventSetWait_v2(self, events: set[str], _: int) -> SimpleNamespace:  # noqa: N802
        """Wait for an event, not for long; None ends NVML."""
        self.waiting += 1
        try:
            event = self.events.get(timeout=0.02)
        except queue.Empty:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT) from None
        finally:
            self.waiting -= 1
        if event is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        card, xid = event
        if card.uuid not in events:  # nobody asked for it yet
            self.events.put(event)
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(device=card, eventData=xid)
