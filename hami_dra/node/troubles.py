"""What needs a person: in the log, in the node's events and in the metrics.

Readiness has what keeps the agent from its work. A card that fails does not: an agent that is not
ready for it would keep the rolling update of all nodes, and an installation, waiting for that card.
"""

import logging
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

from hami_dra.node.metrics import Metrics

_log = logging.getLogger(__name__)


class Trouble(StrEnum):
    """Kinds of trouble; the values are reasons of events and labels of a metric."""

    DEVICE_PLUGIN = "DevicePluginServesCards"
    DROPPED_FIELDS = "ApiServerDropsFields"
    DROPPED_TAINTS = "ApiServerDropsTaints"
    SLICE_REFUSED = "ResourceSliceRefused"
    FORBIDDEN = "MissingPermission"
    FOREIGN_SLICE = "ForeignResourceSlice"
    NO_NODE = "NodeNotFound"
    CHECKPOINT = "CheckpointDamaged"
    NEWER_CHECKPOINT = "CheckpointFromNewerRelease"
    CARDS = "CardsNotFound"
    CARD = "CardUnhealthy"


HARMLESS: Final = frozenset(
    {Trouble.CARD, Trouble.CHECKPOINT, Trouble.DROPPED_TAINTS, Trouble.FOREIGN_SLICE}
)
"""What an agent works on with, and its successor would meet as well."""


class Events(Protocol):
    """Where warnings are written for people."""

    async def warn(self, reason: str, message: str) -> None:
        """Write a warning."""


class Troubles:
    """The troubles of one agent."""

    def __init__(self, events: Events, metrics: Metrics) -> None:
        self._events = events
        self._metrics = metrics
        self._current: dict[Trouble, str] = {}
        # Series that exist from the start let alerts see the first trouble as an increase.
        for kind in Trouble:
            metrics.troubles.labels(kind).set(0)

    def current(self) -> Mapping[Trouble, str]:
        """Return the troubles that last, each with its sentence."""
        return dict(self._current)

    async def begin(self, kind: Trouble, message: str) -> None:
        """Tell people of a trouble; the same one is told once."""
        if self._current.get(kind) == message:
            return
        self._current[kind] = message
        self._metrics.troubles.labels(kind).set(1)
        _log.error(message, extra={"fields": {"trouble": kind.value}})
        await self._events.warn(kind.value, message)

    def end(self, *kinds: Trouble) -> None:
        """Take troubles back that are over."""
        for kind in kinds:
            if self._current.pop(kind, None) is not None:
                self._metrics.troubles.labels(kind).set(0)
                _log.info("trouble is over", extra={"fields": {"trouble": kind.value}})
