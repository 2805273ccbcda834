"""Publish a node's ResourceSlice, and notice when the API server stores less than was sent."""

import contextlib
import copy
from typing import Any, Final

from hami_dra.kube.errors import ConflictError, NotFoundError
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from hami_dra.migration.quantity import QuantityError, parse

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
"""The collection."""

_GATED: Final = ("allowMultipleAllocations", "requestPolicy")
_TAINTS: Final = "taints"
_ATTEMPTS: Final = 5
# The server writes into a taint when it was added.
_SERVERS_OWN: Final = frozenset({"timeAdded"})
_AMOUNTS: Final = frozenset({"value", "default", "min", "max", "step", "validValues"})


class DroppedFieldsError(Exception):
    """The API server stored the slice without the fields that make cards shareable.

    Attributes:
        fields: what is missing, as paths below the slice's devices.
    """

    def __init__(self, fields: tuple[str, ...]) -> None:
        super().__init__(fields)
        self.fields = fields

    @property
    def is_shareable(self) -> bool:
        """Tell whether cards can be shared nevertheless: only their taints are missing."""
        return self.fields == (_TAINTS,)

    def __str__(self) -> str:
        """Render what was found and what to do."""
        if self.is_shareable:
            return (
                "the API server dropped the taints of cards that failed, so pods still get them:"
                " switch the feature gate DRADeviceTaints on in kube-apiserver and kube-scheduler"
                " (it is on by default since 1.36)"
            )
        return (
            f"the API server dropped {', '.join(self.fields)} from the ResourceSlice, so every card"
            " would be given away whole: switch the feature gate DRAConsumableCapacity on in"
            " kube-apiserver, kube-scheduler and kubelet (it is on by default since 1.36)"
        )


async def publish(session: Session, wanted: Json) -> Json:
    """Have the slice as wanted and return it as stored; without a difference nothing is written.

    The pool's generation is raised only by a change.

    Raises:
        DroppedFieldsError: if the server keeps less than makes cards shareable.
        ApiError: if the server refuses.
        UnreachableError: if it does not answer.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _publish_once(session, wanted)
        except (ConflictError, NotFoundError):
            continue  # somebody else, such as the kubelet at its start, was faster; read again
    return await _publish_once(session, wanted)


async def _publish_once(session: Session, wanted: Json) -> Json:
    path = f"{PATH}/{wanted['metadata']['name']}"
    try:
        found = await session.get(path)
    except NotFoundError:
        stored = await session.create(PATH, wanted)
    else:
        same = is_same(found, wanted)
        stored = found if same else await session.replace(path, _successor(found, wanted))
    if dropped := dropped_fields(wanted, stored):
        raise DroppedFieldsError(dropped)
    return stored


async def remove(session: Session, found: Json) -> None:
    """Delete a slice, unless it changed since it was read.

    Raises:
        ApiError: if the server refuses.
        UnreachableError: if it does not answer.
    """
    metadata = found["metadata"]
    seen = {name: metadata[name] for name in ("uid", "resourceVersion") if name in metadata}
    with contextlib.suppress(NotFoundError, ConflictError):
        await session.delete(f"{PATH}/{metadata['name']}", options={"preconditions": seen})


def is_same(found: Json, wanted: Json) -> bool:
    """Tell whether a stored slice says what is wanted, however the server spells it."""
    return bool(_meaning(found) == _meaning(wanted))


def dropped_fields(sent: Json, stored: Json) -> tuple[str, ...]:
    """List the gated fields that were sent and did not come back."""
    kept = {device["name"]: device for device in stored["spec"].get("devices") or ()}
    missing = {
        field: None
        for device in sent["spec"].get("devices") or ()
        for field in _missing(device, kept.get(device["name"]) or {})
    }
    return tuple(missing)


def _missing(sent: Json, stored: Json) -> list[str]:
    share, policy = _GATED
    found = [] if stored.get(share) == sent.get(share) else [share]
    found += [_TAINTS] if sent.get(_TAINTS) and not stored.get(_TAINTS) else []
    kept = stored.get("capacity") or {}
    found += [
        f"capacity.{name}.{policy}"
        for name, capacity in (sent.get("capacity") or {}).items()
        if capacity.get(policy) and not (kept.get(name) or {}).get(policy)
    ]
    return found


def _meaning(item: Json) -> Any:  # noqa: ANN401 - any JSON
    """Return what makes two slices equal: the spec without its generation, and the owners."""
    spec = dict(item["spec"])
    spec["pool"] = {k: v for k, v in spec["pool"].items() if k != "generation"}
    owners = [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]
    return _by_value(spec), owners


def _by_value(part: Any) -> Any:  # noqa: ANN401 - any JSON
    """Replace quantities by their amounts, since the server rewrites `81920Mi` as `80Gi`."""
    if isinstance(part, list):
        return [_by_value(item) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        name: _amounts(value) if name in _AMOUNTS else _by_value(value)
        for name, value in part.items()
        if name not in _SERVERS_OWN
    }


def _amounts(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, list):
        return [_amounts(item) for item in value]
    try:
        return parse(value).nanos
    except QuantityError:
        return _by_value(value)


def _successor(found: Json, wanted: Json) -> Json:
    """Build the replacement: the next generation, on top of the version that was read."""
    following = copy.deepcopy(wanted)
    following["spec"]["pool"]["generation"] = found["spec"]["pool"]["generation"] + 1
    following["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
    return following
