"""NVIDIA's cards, through NVML (ruling 41).

NVML is loaded and asked in whatever thread calls; its answers may take long. What NVML cannot be
asked now is an error that says so, never a node without cards.
"""

import importlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hami_dra.node.backend import LOST, UNREADABLE, BackendError, CardTrouble, FindEdits
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.inventory import Card
from hami_dra.node.listener import Listener, as_text
from hami_dra.node.meter import Measured, Meter

_PCI: Final = Path("sys/bus/pci/devices")
_PATIENCE_S: Final = 1.0
_GOOD_LOOKS: Final = 2
"""Good looks at a card, one after another, after which it counts as recovered."""

# What applications do to themselves, not what cards do; NVIDIA's list of XIDs.
_APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})

_ARCHITECTURES: Final = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
}
_BRANDS: Final = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}

_log = logging.getLogger(__name__)


class NvmlCards:
    """The NVIDIA cards of this node.

    Args:
        find_edits: finds out what containers need to use them.
        root: of the file system in which sysfs is.
        library: NVML's binding; default is nvidia-ml-py.
    """

    name = "nvml"
    is_measurable = True

    def __init__(
        self,
        find_edits: FindEdits,
        *,
        root: Path = Path("/"),
        library: Any = None,  # noqa: ANN401 - an untyped binding
    ) -> None:
        self._find_edits = find_edits
        self._root = root
        self._nvml = library or importlib.import_module("pynvml")
        self._meter = Meter(self._nvml)
        self._lock = threading.RLock()
        self._is_open = False
        self._cards: tuple[Card, ...] = ()
        self._failed: dict[str, CardTrouble] = {}
        self._good_looks: dict[str, int] = {}
        self._partitioned: set[str] = set()  # those that were told of
        self._listener = Listener(self._nvml, self.note_xid)
        # Apart from the other one, which is held while the thread that listens is waited for.
        self._failures = threading.Lock()

    def cards(self) -> Sequence[Card]:
        """Return the cards in the order of their bus, which is CUDA's.

        Raises:
            BackendError: if NVML cannot be asked.
        """
        with self._lock:
            try:
                self._open()
                found = self._found()
            except self._nvml.NVMLError as error:
                self._close()
                raise BackendError(_why(self._nvml, error)) from error
            self._cards = tuple(sorted(found, key=lambda card: card.pcie_bus_id))
            self._listener.listen([card.uuid for card in self._cards])
        return self._cards

    def troubles(self) -> Mapping[str, CardTrouble]:
        """Return what is wrong with cards, by UUID; a card recovers after two good looks."""
        with self._lock:
            for card in self._cards:
                trouble = self._trouble(card.uuid)
                with self._failures:
                    self._judge(card.uuid, trouble)
            with self._failures:
                return dict(self._failed)

    def edits(self) -> NodeEdits:
        """Return what containers need to use the cards.

        Raises:
            BackendError: if that cannot be found out.
        """
        return self._find_edits(self._cards)

    def processes(self, uuid: str) -> Mapping[int, Measured]:
        """Return what each process did on a card.

        Raises:
            BackendError: if the driver does not tell, as for partitioned cards.
        """
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise BackendError(f"card {uuid} does not tell of processes: the driver is busy")
        try:
            return self._meter.measure(uuid)
        except self._nvml.NVMLError as error:
            raise BackendError(f"card {uuid} does not tell of processes: {error}") from error
        finally:
            self._lock.release()

    def note_xid(self, uuid: str, xid: int) -> None:
        """Take in an error that the driver reported of a card."""
        if xid in _APPLICATION_XIDS:
            _log.info("XID %d on %s, caused by an application", xid, uuid)
            return
        with self._failures:
            self._fail(uuid, CardTrouble(f"xid-{xid}", f"the driver reported XID {xid}"))

    def _judge(self, uuid: str, trouble: CardTrouble | None) -> None:
        """Take in what is wrong with a card now, and count good looks at one that had failed."""
        if trouble is not None:
            self._fail(uuid, trouble)
        elif uuid in self._failed:
            self._good_looks[uuid] = self._good_looks.get(uuid, 0) + 1
            if self._good_looks[uuid] >= _GOOD_LOOKS:
                del self._failed[uuid], self._good_looks[uuid]
                _log.info("card %s recovered", uuid)

    def _fail(self, uuid: str, trouble: CardTrouble) -> None:
        self._good_looks.pop(uuid, None)
        if self._failed.get(uuid) != trouble:
            _log.error("card %s failed: %s", uuid, trouble.message)
        self._failed[uuid] = trouble

    def _trouble(self, uuid: str) -> CardTrouble | None:
        """Return what is wrong with a card now."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError_GpuIsLost:
            return CardTrouble(LOST, "the card has fallen off the bus; reboot the node")
        except nvml.NVMLError as error:
            return CardTrouble(UNREADABLE, f"the card does not answer: {error}")
        action = self._recovery_action(handle)
        if action in (None, nvml.NVML_GPU_RECOVERY_ACTION_NONE):
            return None
        return CardTrouble(f"needs-reset-{action}", f"the driver asks for recovery action {action}")

    def _recovery_action(self, handle: object) -> int | None:
        """Return what the driver asks for; None where it does not say."""
        field = self._nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        try:
            [value] = self._nvml.nvmlDeviceGetFieldValues(handle, [field])
        except self._nvml.NVMLError:
            return None
        return None if value.nvmlReturn else int(value.value.uiVal)

    def _open(self) -> None:
        if not self._is_open:
            self._nvml.nvmlInit()
            self._is_open = True

    def _close(self) -> None:
        """Forget NVML, so that the next look begins anew: the driver may have been reloaded."""
        if self._is_open:
            self._is_open = False
            self._listener.end()
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError as error:
                _log.info("NVML was not shut down: %s", error)

    def _found(self) -> list[Card]:
        """Return the cards that answer, and those that did before and do not now."""
        found: list[Card] = []
        errors: list[Exception] = []
        partitioned: set[str] = set()
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                if self._is_partitioned(handle):
                    partitioned.add(as_text(self._nvml.nvmlDeviceGetUUID(handle)))
                else:
                    found.append(self._card(handle))
            except self._nvml.NVMLError as error:
                # One card's trouble is no other's; who has it still has it.
                _log.debug("card %d does not answer: %s", index, error)
                errors.append(error)
        self._tell_partitioned(partitioned)
        answered = {card.uuid for card in found} | partitioned
        # Which of them is silent and which was taken out is not told; one that stays is not used.
        silent = [card for card in self._cards if errors and card.uuid not in answered]
        if errors and not found and not silent:
            raise errors[0]
        return [*found, *silent]

    def _tell_partitioned(self, uuids: set[str]) -> None:
        for uuid in sorted(uuids - self._partitioned):
            _log.warning("card %s is partitioned (MIG) and is not shared out", uuid)
        self._partitioned = uuids

    def _is_partitioned(self, handle: object) -> bool:
        try:
            current, _ = self._nvml.nvmlDeviceGetMigMode(handle)
        except self._nvml.NVMLError:
            return False
        return bool(current == self._nvml.NVML_DEVICE_MIG_ENABLE)

    def _card(self, handle: object) -> Card:
        nvml = self._nvml
        bus = _bus_id(nvml.nvmlDeviceGetPciInfo(handle))
        major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
        cuda: int = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return Card(
            uuid=as_text(nvml.nvmlDeviceGetUUID(handle)),
            minor=int(nvml.nvmlDeviceGetMinorNumber(handle)),
            product_name=as_text(nvml.nvmlDeviceGetName(handle)),
            brand=_BRANDS.get(self._number(nvml.nvmlDeviceGetBrand, handle), ""),
            architecture=_ARCHITECTURES.get(
                self._number(nvml.nvmlDeviceGetArchitecture, handle), ""
            ),
            memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            compute_capability=f"{major}.{minor}",
            driver_version=as_text(nvml.nvmlSystemGetDriverVersion()),
            cuda_driver_version=f"{cuda // 1000}.{cuda % 1000 // 10}",
            pcie_bus_id=bus,
            pcie_root=_pcie_root(self._root / _PCI / bus),
        )

    def _number(self, question: Callable[[object], Any], handle: object) -> int:
        """Return what a card need not tell, such as an old one its architecture; -1 for nothing."""
        try:
            return int(question(handle))
        except self._nvml.NVMLError:
            return -1


def _why(nvml: Any, error: Exception) -> str:  # noqa: ANN401 - an untyped binding
    """Say what keeps NVML from answering, and what to do."""
    if isinstance(error, nvml.NVMLError_LibraryNotFound):
        return (
            "found no libnvidia-ml.so.1, expected NVIDIA's driver: mount the driver's root into the"
            " agent's pod, or install the driver on the node"
        )
    if isinstance(error, nvml.NVMLError_DriverNotLoaded):
        return "NVIDIA's kernel driver is not loaded on this node: load it with `nvidia-smi`"
    if isinstance(error, nvml.NVMLError_NoPermission):
        return "NVML refuses this process: run the agent as root with access to /dev/nvidiactl"
    if isinstance(error, nvml.NVMLError_LibRmVersionMismatch):
        return (
            "found libnvidia-ml.so.1 of another driver than the kernel's, as after an update:"
            " delete the agent's pod, so that it gets the new one, or reboot the node"
        )
    return f"NVML does not answer: {error}"


def _bus_id(info: Any) -> str:  # noqa: ANN401 - an untyped binding
    """Write a card's place as sysfs writes it, such as `0000:17:00.0`."""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


def _pcie_root(device: Path) -> str:
    """Return the root complex above a device, or nothing where there is none, as in many VMs."""
    try:
        parts = device.resolve(strict=True).parts
    except OSError:
        return ""
    return next((part for part in parts if part.startswith("pci") and ":" in part), "")
