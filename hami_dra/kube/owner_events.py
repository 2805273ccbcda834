"""Tell a pod's owner what its migration noticed, as Events.

A pod has no identity yet while it is admitted, and the warnings of one that a controller creates
end in that controller's log. Its owner has an identity, and `kubectl describe` shows its Events.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hami_dra.kube.errors import ApiError, ConflictError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.migration import Json, Notice

_API: Final = "/apis/events.k8s.io/v1"
_CONTROLLER: Final = "hami-dra.io/webhook"
_LONGEST_NOTE: Final = 1024  # events.k8s.io/v1: bytes of a note
_LONGEST_NAME: Final = 200  # leaves room for the digest within a DNS subdomain
_DIGITS: Final = 16
_LONGEST_FIELD: Final = 317  # an API group and a version; names, kinds and UIDs are shorter

# What waits and what was told are bounded, and so is the pace: pods name their owners themselves.
_MOST_WAITING: Final = 256
_MOST_TOLD: Final = 4096
_PACE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Event:
    """One notice about one owner.

    Attributes:
        namespace: of the pod and so of its owner.
        owner: the pod's reference to the controller that created it.
        code: the notice's code.
        note: what `kubectl describe` shows.
    """

    namespace: str
    owner: tuple[str, str, str, str]
    code: str
    note: str

    @property
    def name(self) -> str:
        """Return a name that all replicas give to the same event, so that it exists once."""
        _, _, name, uid = self.owner
        digest = hashlib.sha256(f"{uid}/{self.note}".encode()).hexdigest()[:_DIGITS]
        return f"{name[:_LONGEST_NAME].rstrip('-.')}.{digest}"

    def manifest(self, instance: str, now: datetime) -> Json:
        """Return the object, as `events.k8s.io/v1` wants it."""
        api_version, kind, name, uid = self.owner
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "eventTime": now.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "reportingController": _CONTROLLER,
            "reportingInstance": instance,
            "action": "Migrate",
            "reason": self.code,
            "type": "Warning",
            "note": self.note,
            "regarding": {
                "apiVersion": api_version,
                "kind": kind,
                "namespace": self.namespace,
                "name": name,
                "uid": uid,
            },
        }


class OwnerEvents:
    """Events for the owners of migrated pods: each notice once an owner, and never in the way.

    Written by: the event loop only. An event that cannot be written is dropped; a migration never
    waits for one.

    Args:
        session: the API server.
        instance: which replica speaks, such as its pod's name.
        now: the wall clock.
        pace_s: seconds between two events.

    Attributes:
        dropped: how many could not be told.
        written: how many were.
    """

    def __init__(
        self,
        session: Session,
        instance: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        pace_s: float = _PACE_S,
    ) -> None:
        self.dropped = 0
        self.written = 0
        self._session = session
        self._instance = instance
        self._now = now
        self._pace_s = pace_s
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(_MOST_WAITING)
        self._told: OrderedDict[str, None] = OrderedDict()

    def tell(self, namespace: str, pod: Json, notices: Iterable[Notice]) -> None:
        """Have a pod's notices written to its owner; a pod without one is shown warnings."""
        owner = controller_of(pod)
        if owner is None:
            return
        for notice in notices:
            event = Event(namespace, owner, notice.code, note_of(notice))
            if self._is_news(event):
                self._enqueue(event)

    async def run(self) -> None:
        """Write what is told until cancelled."""
        while True:
            await self._write(await self._waiting.get())
            await asyncio.sleep(self._pace_s)

    def _is_news(self, event: Event) -> bool:
        if event.name in self._told:
            self._told.move_to_end(event.name)
            return False
        self._told[event.name] = None
        if len(self._told) > _MOST_TOLD:
            self._told.popitem(last=False)
        return True

    def _enqueue(self, event: Event) -> None:
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1
            # Not told after all, so another pod of the same owner may tell it later.
            del self._told[event.name]

    async def _write(self, event: Event) -> None:
        path = f"{_API}/namespaces/{event.namespace}/events"
        try:
            await self._session.create(path, event.manifest(self._instance, self._now()))
        except ConflictError:
            return  # another replica was first
        except (ApiError, UnreachableError):
            self.dropped += 1
            return
        self.written += 1


def controller_of(pod: Json) -> tuple[str, str, str, str] | None:
    """Return apiVersion, kind, name and UID of a pod's controller, or None where it has none.

    Nobody has checked them yet. A reference that is longer than any can be has no owner behind it.
    """
    metadata = pod.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller") is True:
            found = [reference.get(key) for key in ("apiVersion", "kind", "name", "uid")]
            texts = [
                each for each in found if isinstance(each, str) and len(each) <= _LONGEST_FIELD
            ]
            if len(texts) == len(found):
                api_version, kind, name, uid = texts
                return api_version, kind, name, uid
    return None


def note_of(notice: Notice) -> str:
    """Return the notice as one printable line that an Event can hold."""
    line = "".join(c if c.isprintable() else " " for c in str(notice))
    return line.encode()[:_LONGEST_NOTE].decode(errors="ignore")
