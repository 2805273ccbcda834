"""What kubelet and agent say to each other, without a word about bytes. Pure."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

REGISTRATION: Final = "pluginregistration.Registration"
DRA_SERVICES: Final = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
"""Service names by the name that is advertised; the kubelet takes the first that it knows."""
HEALTH_SERVICES: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""Service names, advertised as they are."""


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """A claim as the kubelet names it."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A share as the kubelet is told of it.

    Attributes:
        requests: the requests of the claim that it answers.
        pool: the device's pool.
        device: the device's name in the pool.
        cdi_ids: what the runtime gives to containers.
        share_id: the allocation's, if it has one.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The answer for one claim: devices, or an error for the pod's events."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What the kubelet learns at registration.

    Attributes:
        type: of the plugin.
        name: the driver's.
        endpoint: path of the socket with its services.
        versions: advertised services, the preferred one first.
    """

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RegistrationStatus:
    """The kubelet's verdict on a registration."""

    is_registered: bool
    error: str = ""


class Health(IntEnum):
    """How a device is."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """How a device is, since when, and how long that may be believed.

    Attributes:
        pool: the device's pool.
        device: its name.
        health: how it is.
        updated_s: when that was found, in seconds since 1970.
        timeout_s: after which silence means unknown.
        message: for people; cut at 1024 characters.
    """

    pool: str
    device: str
    health: Health
    updated_s: int
    timeout_s: int
    message: str = ""
