"""What this node offers now: cards, their troubles, and what containers need to use them."""

import threading
from collections.abc import Sequence
from typing import Final, TypeAlias

from hami_dra.migration import Json
from hami_dra.node.allocation import PrepareError
from hami_dra.node.backend import LOST, UNREADABLE, Backend, BackendError, CardTrouble
from hami_dra.node.cdi import Mount, NodeEdits
from hami_dra.node.devices import device_name, resource_slice
from hami_dra.node.inventory import Card
from hami_dra.node.library import Library
from hami_dra.node.prepare import Node
from hami_dra.node.strictness import USUAL, Strictness
from hami_dra.patience import HangsError, Patience

HANGS_S: Final = 20.0
"""Seconds until a driver that does not answer counts as one that hangs. Cards without persistence
mode take most of that to begin; a starting agent must be there before its probes give it up."""

_Found: TypeAlias = tuple[tuple[Card, ...], dict[str, CardTrouble], NodeEdits | None, str]


class NodeState:
    """The last known state of one node; read from any thread.

    Args:
        backend: where cards come from.
        name: the node's name.
        driver: our driver's name.
        split_count: how many tenants a card may have.
        library: the native library; None for none.
        strictness: how strictly claims are held to their limits that wish for nothing.
        hangs_s: see `HANGS_S`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        name: str,
        driver: str,
        split_count: int,
        library: Library | None = None,
        strictness: Strictness = USUAL,
        hangs_s: float = HANGS_S,
    ) -> None:
        self._backend = backend
        self._library = library
        self._strictness = strictness
        self._name = name
        self._driver = driver
        self._split_count = split_count
        self._lock = threading.Lock()
        self._node = Node(name, driver, {}, split_count)
        self._order: tuple[Card, ...] = ()
        self._troubles: dict[str, CardTrouble] = {}
        self._edits: NodeEdits | None = None
        self._problem = ""
        self._patience = Patience(self._look, hangs_s)

    @property
    def problem(self) -> str:
        """Return why the cards or their edits could not be found; empty when they were."""
        return self._problem

    def refresh(self) -> bool:
        """Look at the cards again; return whether anything changed. Blocks, but not for ever."""
        before: _Found = (self._order, self._troubles, self._edits, self._problem)
        try:
            after = self._patience.ask()
        except HangsError as error:
            after = _silent(before, f"the driver hangs: {error}; if that lasts, reboot the node")
        with self._lock:
            self._order, self._troubles, self._edits, self._problem = after
            by_uuid = {card.uuid: card for card in self._order}
            lost = {uuid: each.message for uuid, each in after[1].items() if each.code == LOST}
            self._node = Node(self._name, self._driver, by_uuid, self._split_count, lost)
        return before != after

    def _look(self) -> _Found:
        """Look at the cards, and then for what containers need; a failure of one is only its own.

        What cannot be asked now is not gone: prepared claims keep their cards.
        """
        before: _Found = (self._order, self._troubles, self._edits, self._problem)
        try:
            cards, troubles = tuple(self._backend.cards()), dict(self._backend.troubles())
        except BackendError as error:
            return _silent(before, str(error))
        try:
            return cards, troubles, self._backend.edits(), ""
        except BackendError as error:
            return cards, troubles, self._edits, str(error)

    def node(self) -> Node:
        """Return the cards that can be prepared now."""
        return self._node

    def edits(self) -> NodeEdits:
        """Return what containers need to use them.

        Raises:
            PrepareError: if that is not known.
        """
        if self._edits is None:
            raise PrepareError(f"what containers need to use a card is not known: {self._problem}")
        return self._edits

    def strictness(self) -> Strictness:
        """Return how strictly claims are held to their limits that wish for nothing."""
        return self._strictness

    def library(self) -> str:
        """Return the digest of the native library that new claims get; empty for none."""
        return self._library.digest if self._library else ""

    def library_mounts(self, digest: str) -> Sequence[Mount]:
        """Return the mounts that bring a library into a container.

        Raises:
            PrepareError: if that library is not on the node.
        """
        if not digest:
            return ()
        if self._library is None:
            raise PrepareError(
                "the claim was prepared with the native library, and this agent has none: start it"
                " with --library"
            )
        return self._library.mounts(digest)

    def slice(self, node_uid: str) -> Json:
        """Build the slice to publish: no card before it is known what containers need."""
        return resource_slice(
            () if self._edits is None else self._order,
            node=self._name,
            node_uid=node_uid,
            driver=self._driver,
            split_count=self._split_count,
            unhealthy={uuid: trouble.code for uuid, trouble in self._troubles.items()},
        )

    def health(self) -> tuple[tuple[str, str], ...]:
        """Return each device and what is wrong with it, empty for nothing."""
        with self._lock:
            return tuple(
                (device_name(card.uuid), wrong.message if wrong else "")
                for card in self._order
                for wrong in [self._troubles.get(card.uuid)]
            )


def _silent(before: _Found, problem: str) -> _Found:
    """Keep what is known of cards that cannot be asked now, and give none of them to new pods."""
    cards, troubles, edits, _ = before
    known = {uuid: trouble for uuid, trouble in troubles.items() if trouble.code != UNREADABLE}
    silent = {card.uuid: CardTrouble(UNREADABLE, problem) for card in cards}
    return cards, {**silent, **known}, edits, problem
