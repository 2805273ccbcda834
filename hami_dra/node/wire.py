"""The kubelet's protocols on the wire: plugin registration, DRA and device health.

Message classes are built at import from the field numbers of the kubelet's API. Nothing outside
this module sees a protobuf message. Source: k8s.io/kubelet,
pkg/apis/{pluginregistration,dra,dra-health}.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.message import DecodeError

from hami_dra.node.messages import (
    ClaimReference,
    DeviceHealth,
    Health,
    PluginInfo,
    Prepared,
    PreparedDevice,
    RegistrationStatus,
)
from hami_dra.node.protos import Messages, classes

_LONGEST_MESSAGE: Final = 1024  # of a device's health

_MESSAGES: Final[Messages] = {
    "Empty": (),
    "PluginInfo": (
        ("type", 1, "string", ""),
        ("name", 2, "string", ""),
        ("endpoint", 3, "string", ""),
        ("supported_versions", 4, "string", "repeated"),
    ),
    "RegistrationStatus": (("plugin_registered", 1, "bool", ""), ("error", 2, "string", "")),
    "Claim": (
        ("namespace", 1, "string", ""),
        ("uid", 2, "string", ""),
        ("name", 3, "string", ""),
    ),
    "ClaimsRequest": (("claims", 1, "Claim", "repeated"),),
    "Device": (
        ("request_names", 1, "string", "repeated"),
        ("pool_name", 2, "string", ""),
        ("device_name", 3, "string", ""),
        ("cdi_device_ids", 4, "string", "repeated"),
        ("share_id", 5, "string", "optional"),
    ),
    "PrepareResponse": (("devices", 1, "Device", "repeated"), ("error", 2, "string", "")),
    "UnprepareResponse": (("error", 1, "string", ""),),
    # A map's entry; on the wire a map is a repeated message of these two fields.
    "PrepareEntry": (("key", 1, "string", ""), ("value", 2, "PrepareResponse", "")),
    "UnprepareEntry": (("key", 1, "string", ""), ("value", 2, "UnprepareResponse", "")),
    "PrepareResponses": (("claims", 1, "PrepareEntry", "repeated"),),
    "UnprepareResponses": (("claims", 1, "UnprepareEntry", "repeated"),),
    "DeviceIdentifier": (("pool_name", 1, "string", ""), ("device_name", 2, "string", "")),
    "DeviceHealth": (
        ("device", 1, "DeviceIdentifier", ""),
        ("health", 2, "int32", ""),
        ("last_updated_time", 3, "int64", ""),
        ("health_check_timeout_seconds", 4, "int64", ""),
        ("message", 5, "string", ""),
    ),
    "HealthResponse": (("devices", 1, "DeviceHealth", "repeated"),),
}


class WireError(ValueError):
    """The bytes are not the expected message."""


def decode_empty(data: bytes) -> None:
    """Read a message without fields; unknown ones are passed over, as protobuf does."""
    _parse("Empty", data)


def encode_empty(_: object = None) -> bytes:
    """Write a message without fields."""
    return b""


def encode_plugin_info(info: PluginInfo) -> bytes:
    """Write what the kubelet learns at registration."""
    return _bytes(
        "PluginInfo",
        type=info.type,
        name=info.name,
        endpoint=info.endpoint,
        supported_versions=info.versions,
    )


def decode_plugin_info(data: bytes) -> PluginInfo:
    """Read what a plugin tells the kubelet."""
    found = _parse("PluginInfo", data)
    return PluginInfo(found.type, found.name, found.endpoint, tuple(found.supported_versions))


def encode_status(status: RegistrationStatus) -> bytes:
    """Write the kubelet's verdict."""
    fields = {"plugin_registered": status.is_registered, "error": status.error}
    return _bytes("RegistrationStatus", **fields)


def decode_status(data: bytes) -> RegistrationStatus:
    """Read the kubelet's verdict."""
    found = _parse("RegistrationStatus", data)
    return RegistrationStatus(found.plugin_registered, found.error)


def encode_claims(claims: Iterable[ClaimReference]) -> bytes:
    """Write which claims to prepare or unprepare."""
    parts = [{"namespace": each.namespace, "uid": each.uid, "name": each.name} for each in claims]
    return _bytes("ClaimsRequest", claims=parts)


def decode_claims(data: bytes) -> tuple[ClaimReference, ...]:
    """Read which claims to prepare or unprepare."""
    found = _parse("ClaimsRequest", data)
    return tuple(ClaimReference(each.namespace, each.uid, each.name) for each in found.claims)


def encode_prepared(answers: Mapping[str, Prepared]) -> bytes:
    """Write the answers of a prepare, by claim UID."""
    entries = [
        {
            "key": uid,
            "value": {
                "devices": [_device(device) for device in answer.devices],
                "error": answer.error,
            },
        }
        for uid, answer in answers.items()
    ]
    return _bytes("PrepareResponses", claims=entries)


def decode_prepared(data: bytes) -> dict[str, Prepared]:
    """Read the answers of a prepare."""
    return {
        entry.key: Prepared(
            devices=tuple(
                PreparedDevice(
                    requests=tuple(device.request_names),
                    pool=device.pool_name,
                    device=device.device_name,
                    cdi_ids=tuple(device.cdi_device_ids),
                    share_id=device.share_id if device.HasField("share_id") else None,
                )
                for device in entry.value.devices
            ),
            error=entry.value.error,
        )
        for entry in _parse("PrepareResponses", data).claims
    }


def encode_unprepared(answers: Mapping[str, str]) -> bytes:
    """Write the errors of an unprepare by claim UID; empty means that it worked."""
    entries = [{"key": uid, "value": {"error": error}} for uid, error in answers.items()]
    return _bytes("UnprepareResponses", claims=entries)


def decode_unprepared(data: bytes) -> dict[str, str]:
    """Read the errors of an unprepare."""
    return {each.key: each.value.error for each in _parse("UnprepareResponses", data).claims}


def encode_health(devices: Iterable[DeviceHealth]) -> bytes:
    """Write how all devices are."""
    parts = [
        {
            "device": {"pool_name": each.pool, "device_name": each.device},
            "health": int(each.health),
            "last_updated_time": each.updated_s,
            "health_check_timeout_seconds": each.timeout_s,
            "message": each.message[:_LONGEST_MESSAGE],
        }
        for each in devices
    ]
    return _bytes("HealthResponse", devices=parts)


def decode_health(data: bytes) -> tuple[DeviceHealth, ...]:
    """Read how devices are."""
    return tuple(
        DeviceHealth(
            pool=each.device.pool_name,
            device=each.device.device_name,
            health=Health(each.health),
            updated_s=each.last_updated_time,
            timeout_s=each.health_check_timeout_seconds,
            message=each.message,
        )
        for each in _parse("HealthResponse", data).devices
    )


def _device(device: PreparedDevice) -> dict[str, object]:
    fields: dict[str, object] = {
        "request_names": device.requests,
        "pool_name": device.pool,
        "device_name": device.device,
        "cdi_device_ids": device.cdi_ids,
    }
    # Absent and empty differ to the kubelet.
    return fields if device.share_id is None else {**fields, "share_id": device.share_id}


_CLASSES: Final = classes("hami_dra/node/wire.proto", _MESSAGES)


def _bytes(message: str, /, **fields: object) -> bytes:
    data: bytes = _CLASSES[message](**fields).SerializeToString(deterministic=True)
    return data


def _parse(name: str, data: bytes) -> Any:  # noqa: ANN401 - a class made at import
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise WireError(f"found {len(data)} bytes, expected a {name}: {error}") from error
