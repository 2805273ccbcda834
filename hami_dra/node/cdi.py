"""What a container is given, in the words of the Container Device Interface 0.5.0. Pure.

One file for each claim and one device in it for each share (ruling 39). Runtimes refuse a file for
an unknown field or version, so the lowest version that can say it is written: 0.5.0 is the first
that lets names begin with a digit, as claim UIDs do.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hami_dra.migration import Json
from hami_dra.node.share import CardLimit, Share

VERSION: Final = "0.5.0"
KIND: Final = "hami-dra.io/claim"

CLAIMS_IN_CONTAINER: Final = "/run/vgpu/claims"
"""Where the library looks for the files of every claim that a container holds."""

_PREFIX: Final = "hami-dra.io-claim_"
_SUFFIX: Final = ".json"
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "noexec", "bind")
_WRITABLE: Final = ("rw", "nosuid", "nodev", "noexec", "bind")
_EDITS: Final = ("env", "deviceNodes", "mounts", "hooks")


@dataclass(frozen=True, slots=True)
class NodeEdits:
    """What every container on this node needs to use a card, as CDI `containerEdits`.

    Attributes:
        common: for any card: the driver's libraries and control devices.
        cards: for one card, by UUID: its device nodes.
    """

    common: Json = field(default_factory=dict)
    cards: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file of the host that containers see.

    Attributes:
        host: its path on the host.
        container: where containers see it.
        is_writable: whether they may write it.
        may_execute: whether they may map it as a program.
    """

    host: str
    container: str
    is_writable: bool = False
    may_execute: bool = False

    def as_json(self) -> Json:
        """Render as a CDI mount."""
        options = _WRITABLE if self.is_writable else _READ_ONLY
        kept = [each for each in options if not (self.may_execute and each == "noexec")]
        return {"hostPath": self.host, "containerPath": self.container, "options": kept}


def claim_mounts(uid: str, host_directory: str) -> tuple[Mount, Mount]:
    """Return the two files of a claim: limits that containers read, and books that they keep."""
    inside = f"{CLAIMS_IN_CONTAINER}/{uid}"
    return (
        Mount(f"{host_directory}/control", f"{inside}/control"),
        Mount(f"{host_directory}/usage", f"{inside}/usage", is_writable=True),
    )


def spec(
    uid: str,
    shares: Sequence[Share],
    limits: Sequence[CardLimit],
    *,
    edits: NodeEdits,
    mounts: Sequence[Mount],
) -> Json:
    """Build the CDI spec of a claim.

    Args:
        uid: the claim's UID.
        shares: what it holds; at least one.
        limits: their sum for each card, in CUDA's order.
        edits: what containers on this node need.
        mounts: the claim's own files, and the library's.
    """
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "containerEdits": _merged(
            edits.common,
            {
                "env": [f"{name}={text}" for name, text in _claim_variables(shares, limits)],
                "mounts": [mount.as_json() for mount in mounts],
            },
        ),
        "devices": [
            {
                "name": device_name(uid, share),
                "containerEdits": _merged(
                    edits.cards.get(share.uuid) or {},
                    {"env": _card_variables(share.uuid, limits)},
                ),
            }
            for share in shares
        ],
    }


def render(document: Json) -> bytes:
    """Write a spec; equal specs are equal bytes."""
    return json.dumps(document, sort_keys=True).encode() + b"\n"


def file_name(uid: str) -> str:
    """Name the file of a claim; runtimes read *.json alone, so a temporary name goes unseen."""
    return f"{_PREFIX}{uid}{_SUFFIX}"


def claim_uid(name: str) -> str | None:
    """Return whose file this is, or None if it is not one of ours."""
    if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
        return name[len(_PREFIX) : -len(_SUFFIX)]
    return None


def device_name(uid: str, share: Share) -> str:
    """Name a share's device; never reused for other content, since runtimes cache by name."""
    return f"{uid}-{share.device}-{share.suffix}"


def device_id(uid: str, share: Share) -> str:
    """Return the name by which the kubelet hands a share to the runtime."""
    return f"{KIND}={device_name(uid, share)}"


def _claim_variables(shares: Sequence[Share], limits: Sequence[CardLimit]) -> list[tuple[str, str]]:
    """Return the variables that do not depend on which cards a container takes.

    A container may take one request of several, and then counts its cards from 0 again. The
    variables without a number hold such a card to the claim's smallest limit instead of none.
    """
    always = [
        # An image's own NVIDIA_VISIBLE_DEVICES=all must not make another runtime add every card.
        ("NVIDIA_VISIBLE_DEVICES", "void"),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),
    ]
    if len({share.request for share in shares}) == 1:
        return always
    least = min(limit.memory_mib for limit in limits)
    always.append(("CUDA_DEVICE_MEMORY_LIMIT", f"{least}m"))
    # Zero means no limit, and a numbered zero would fall back to this.
    if all(limit.cores for limit in limits):
        always.append(("CUDA_DEVICE_SM_LIMIT", str(min(limit.cores for limit in limits))))
    return always


def _card_variables(uuid: str, limits: Sequence[CardLimit]) -> list[str]:
    """Return HAMi's variables of one card, numbered as CUDA numbers the claim's cards."""
    index = next(number for number, limit in enumerate(limits) if limit.uuid == uuid)
    return [
        f"CUDA_DEVICE_MEMORY_LIMIT_{index}={limits[index].memory_mib}m",
        f"CUDA_DEVICE_SM_LIMIT_{index}={limits[index].cores}",
    ]


def _merged(*parts: Json) -> Json:
    """Put container edits one after another; empty lists are left out."""
    lists = {name: [item for part in parts for item in part.get(name) or ()] for name in _EDITS}
    return {name: items for name, items in lists.items() if items}
