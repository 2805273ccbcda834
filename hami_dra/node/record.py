"""What the agent remembers of a claim, and how it stands in a file. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from hami_dra.migration import Json
from hami_dra.node import strictness
from hami_dra.node.share import Amounts, Share
from hami_dra.node.strictness import USUAL, Strictness

FILE: Final = "record.json"
"""Its name beside a claim's files, for the day when the checkpoint is lost."""

_NAMES: Final = frozenset({"namespace", "name", "state", "library", "shares", "strictness"})


class State(StrEnum):
    """How far a claim is."""

    PREPARING = "preparing"
    """It holds its amounts; its files may be missing."""
    PREPARED = "prepared"
    """Its files are there, and the kubelet may start containers."""


class RecordError(ValueError):
    """The text is not a record that this release can read."""


@dataclass(frozen=True)
class Record:
    """One claim on this node.

    Attributes:
        uid: the claim's UID.
        namespace: its namespace.
        name: its name.
        state: how far it is.
        shares: what it holds.
        library: digest of the native library that its containers have; empty for none.
        strictness: how strictly its containers are held to its limits.
        unknown: what a newer release wrote beside these.
    """

    uid: str
    namespace: str
    name: str
    state: State
    shares: tuple[Share, ...]
    library: str = ""
    strictness: Strictness = USUAL
    unknown: Mapping[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return the claim's name for people."""
        return f"{self.namespace}/{self.name}"

    @cached_property
    def entry(self) -> str:
        """Return the record as a member of a JSON object of all records."""
        return f"{json.dumps(self.uid)}:{self.text}"

    @cached_property
    def text(self) -> str:
        """Return the record as JSON."""
        return json.dumps(
            {
                **self.unknown,
                "namespace": self.namespace,
                "name": self.name,
                "state": self.state.value,
                "library": self.library,
                "strictness": strictness.to_json(self.strictness),
                "shares": [_share_json(share) for share in self.shares],
            },
            separators=(",", ":"),
        )


def from_json(uid: str, found: object) -> Record:
    """Read a record.

    Raises:
        RecordError: if something is missing or of another kind.
    """
    if not isinstance(found, dict):
        raise RecordError(f"found {type(found).__name__} for claim {uid}, expected an object")
    try:
        return Record(
            uid=uid,
            namespace=str(found["namespace"]),
            name=str(found["name"]),
            state=State(found["state"]),
            shares=tuple(_share(each) for each in found["shares"]),
            library=str(found.get("library", "")),
            strictness=_strictness(found.get("strictness")),
            unknown={name: value for name, value in found.items() if name not in _NAMES},
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise RecordError(f"found a broken record of claim {uid}: {error!r}") from error


def _strictness(found: object) -> Strictness:
    """Read how strict; a record of the first release says nothing of it."""
    if found is None:
        return USUAL
    if not isinstance(found, dict):
        raise TypeError(f"found {type(found).__name__}, expected an object")
    return strictness.from_json(found)


def _share_json(share: Share) -> Json:
    return {
        "request": share.request,
        "pool": share.pool,
        "device": share.device,
        "shareID": share.share_id,
        "uuid": share.uuid,
        "memoryMiB": share.amounts.memory_mib,
        "cores": share.amounts.cores,
        "slots": share.amounts.slots,
    }


def _share(found: Json) -> Share:
    if not isinstance(share_id := found["shareID"], str | None):
        raise TypeError(f"found {type(share_id).__name__}, expected a text or null")
    return Share(
        request=str(found["request"]),
        pool=str(found["pool"]),
        device=str(found["device"]),
        share_id=share_id,
        uuid=str(found["uuid"]),
        amounts=Amounts(int(found["memoryMiB"]), int(found["cores"]), int(found["slots"])),
    )
