"""Which container has which claim, from the kubelet's PodResources socket.

Source of the field numbers: k8s.io/kubelet, pkg/apis/podresources/v1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from hami_dra.node.protos import Messages, classes

LIST: Final = "/v1.PodResourcesLister/List"

_TIMEOUT_S: Final = 3.0
_LARGEST: Final = 16 * 2**20  # bytes of an answer; one with 500 pods has about 1 MiB
_MESSAGES: Final[Messages] = {
    "Request": (),
    "Response": (("pod_resources", 1, "Pod", "repeated"),),
    "Pod": (
        ("name", 1, "string", ""),
        ("namespace", 2, "string", ""),
        ("containers", 3, "Container", "repeated"),
    ),
    "Container": (
        ("name", 1, "string", ""),
        ("dynamic_resources", 5, "DynamicResource", "repeated"),
    ),
    "DynamicResource": (
        ("claim_name", 2, "string", ""),
        ("claim_namespace", 3, "string", ""),
        ("claim_resources", 4, "ClaimResource", "repeated"),
    ),
    "ClaimResource": (
        ("driver_name", 2, "string", ""),
        ("pool_name", 3, "string", ""),
        ("device_name", 4, "string", ""),
        ("share_id", 5, "string", "optional"),
    ),
}
_CLASSES: Final = classes("hami_dra/monitor/pods.proto", _MESSAGES)


class PodResourcesError(Exception):
    """The kubelet does not tell; the text says why."""


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that a container has, as the kubelet was told of it when it was prepared.

    Attributes:
        pool: the device's pool.
        device: its name there.
        share_id: the allocation's, where the server gave one.
    """

    pool: str
    device: str
    share_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that a container has.

    Attributes:
        namespace: the claim's.
        name: the claim's.
        devices: those of our driver; at least one.
    """

    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]


@dataclass(frozen=True, slots=True)
class Container:
    """A container with claims of our driver.

    Attributes:
        namespace: its pod's.
        pod: its pod's name.
        name: its own.
        index: its place among the containers that the kubelet lists of the pod, sidecars first.
        claims: what it has.
    """

    namespace: str
    pod: str
    name: str
    index: int
    claims: tuple[HeldClaim, ...]


def list_containers(socket: Path, driver: str) -> tuple[Container, ...]:
    """Ask the kubelet which containers have claims of a driver. Blocks.

    Raises:
        PodResourcesError: if it does not tell.
    """
    # Half of the process's memory, which --help and a node without a kubelet do without.
    import grpc  # noqa: PLC0415 - see above

    options = [("grpc.max_receive_message_length", _LARGEST), ("grpc.enable_http_proxy", 0)]
    # A channel of its own each time: one that is kept waits minutes after the kubelet restarted.
    with grpc.insecure_channel(f"unix:{socket}", options) as channel:
        call = channel.unary_unary(LIST, request_serializer=_empty, response_deserializer=bytes)
        try:
            return decode(call(None, timeout=_TIMEOUT_S), driver)
        except grpc.RpcError as error:
            raise PodResourcesError(f"{socket}: {error.code().name}: {error.details()}") from error


def decode(data: bytes, driver: str) -> tuple[Container, ...]:
    """Read the kubelet's answer; what is of other drivers is passed over.

    Raises:
        PodResourcesError: if it is none.
    """
    try:
        answer = _CLASSES["Response"].FromString(data)
    except DecodeError as error:
        raise PodResourcesError(f"found {len(data)} bytes, expected pods: {error}") from error
    return tuple(
        Container(pod.namespace, pod.name, container.name, index, claims)
        for pod in answer.pod_resources
        for index, container in enumerate(pod.containers)
        if (claims := tuple(_claims(container.dynamic_resources, driver)))
    )


def encode(pods: Sequence[dict[str, Any]]) -> bytes:
    """Write an answer of the kubelet, with fields as in its protocol."""
    data: bytes = _CLASSES["Response"](pod_resources=pods).SerializeToString()
    return data


def _claims(found: Any, driver: str) -> Iterator[HeldClaim]:  # noqa: ANN401 - made at import
    for claim in found:
        devices = tuple(
            HeldDevice(
                each.pool_name,
                each.device_name,
                each.share_id if each.HasField("share_id") else None,
            )
            for each in claim.claim_resources
            if each.driver_name == driver
        )
        if devices:
            yield HeldClaim(claim.claim_namespace, claim.claim_name, devices)


def _empty(_: None) -> bytes:
    return b""
