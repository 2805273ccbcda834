"""Tell people what a component met, where they look for it: in the events of an object."""

import logging
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.migration.json import Json

_NAMESPACE: Final = "default"  # where events of objects without a namespace belong
_PATH: Final = f"/api/v1/namespaces/{_NAMESPACE}/events"
_LONGEST: Final = 1024
_REPEAT: Final = timedelta(minutes=10)

_log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


class NodeEvents:
    """Events about one node, written by one component.

    Args:
        session: the API server.
        component: who reports.
        node: the node's name.
        now: the time.
    """

    def __init__(
        self,
        session: Session,
        component: str,
        node: str,
        *,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._session = session
        self._component = component
        self._node = node
        self._now = now
        self._written: dict[tuple[str, str], datetime] = {}

    async def warn(self, reason: str, message: str) -> None:
        """Write a warning, unless the same was written within ten minutes.

        An event that cannot be written is only logged: the message is in the log anyway.
        """
        key, now = (reason, message), self._now()
        self._written = {k: at for k, at in self._written.items() if abs(now - at) < _REPEAT}
        if key in self._written:
            return
        self._written[key] = now
        try:
            await self._session.create(_PATH, self._event(reason, message, now))
        except (ApiError, UnreachableError) as error:
            _log.warning("event %s not written: %s", reason, error)

    def _event(self, reason: str, message: str, now: datetime) -> Json:
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._node}.{secrets.token_hex(8)}",
                "namespace": _NAMESPACE,
            },
            # As the kubelet does it; `kubectl describe node` looks for this very UID.
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Node",
                "name": self._node,
                "uid": self._node,
            },
            "type": "Warning",
            "reason": reason,
            "message": message[:_LONGEST],
            "source": {"component": self._component, "host": self._node},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
