"""The record of a physical card, whoever found it: NVML or a simulation."""

from dataclasses import dataclass
from typing import Final

_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU of this node.

    Attributes:
        uuid: NVIDIA's name for it, `GPU-` and 8-4-4-4-12 hex digits; stable over reboots.
        minor: the number in `/dev/nvidia<minor>`; may change at reboot.
        product_name: the model as NVML says it, such as `NVIDIA A100-SXM4-80GB`.
        brand: NVML's brand, such as `Nvidia`.
        architecture: such as `Ampere`.
        memory_bytes: physical memory.
        compute_capability: of CUDA, such as `8.0`.
        driver_version: of the kernel driver, such as `550.54.15`.
        cuda_driver_version: the newest CUDA that the driver serves, such as `12.4`.
        pcie_bus_id: such as `0000:17:00.0`.
        pcie_root: such as `pci0000:16`; empty when unknown.
    """

    uuid: str
    minor: int
    product_name: str
    brand: str
    architecture: str
    memory_bytes: int
    compute_capability: str
    driver_version: str
    cuda_driver_version: str
    pcie_bus_id: str
    pcie_root: str = ""

    @property
    def memory_mib(self) -> int:
        """Return the whole mebibytes of memory, which is what is shared out."""
        return self.memory_bytes // _MIB
