"""Cards that do not exist, for clusters without a GPU (ruling 41).

The same node always has the same cards, so a restarted agent finds the ones it published.
"""

import hashlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from hami_dra.node.inventory import Card

_MIB: Final = 2**20
_DRIVER: Final = "550.54.15"
_CUDA: Final = "12.4"


@dataclass(frozen=True, slots=True)
class Profile:
    """What all cards of one model have in common, as NVML reports it."""

    product_name: str
    architecture: str
    memory_mib: int
    compute_capability: str
    brand: str = "Nvidia"


PROFILES: Final = MappingProxyType(
    {
        "a100-80g": Profile("NVIDIA A100-SXM4-80GB", "Ampere", 81920, "8.0"),
        "h100-80g": Profile("NVIDIA H100 80GB HBM3", "Hopper", 81559, "9.0"),
        "l4-24g": Profile("NVIDIA L4", "Ada Lovelace", 23034, "8.9"),
    }
)
"""The models that can be simulated."""


class UnknownProfileError(ValueError):
    """There is no such model to simulate."""


def cards(profile: str, count: int, node: str) -> tuple[Card, ...]:
    """Make up the cards of a node.

    Raises:
        UnknownProfileError: if the profile is none of `PROFILES`.
    """
    if profile not in PROFILES:
        known = ", ".join(sorted(PROFILES))
        raise UnknownProfileError(f"found profile {profile!r}, expected one of: {known}")
    return tuple(_card(PROFILES[profile], index, node) for index in range(count))


def _card(profile: Profile, index: int, node: str) -> Card:
    bus = 0x10 + index
    return Card(
        uuid=_uuid(node, index),
        minor=index,
        product_name=profile.product_name,
        brand=profile.brand,
        architecture=profile.architecture,
        memory_bytes=profile.memory_mib * _MIB,
        compute_capability=profile.compute_capability,
        driver_version=_DRIVER,
        cuda_driver_version=_CUDA,
        pcie_bus_id=f"0000:{bus:02x}:00.0",
        pcie_root=f"pci0000:{bus:02x}",
    )


def _uuid(node: str, index: int) -> str:
    digits = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32])
    return f"GPU-{'-'.join(parts)}"
