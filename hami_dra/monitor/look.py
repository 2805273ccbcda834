"""Look at everything once and make a snapshot of it; what fails hides nothing else."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from hami_dra.monitor import claims as claim_files
from hami_dra.monitor.cards import CardReading, Cards, CardsError
from hami_dra.monitor.claims import ClaimReading, ClaimsReading
from hami_dra.monitor.pods import Container, PodResourcesError
from hami_dra.monitor.snapshot import (
    ClaimUse,
    ContainerUse,
    DeviceUse,
    Snapshot,
    card_uses,
    container_uses,
)
from hami_dra.monitor.usage import Counts, Shares, held, measured_age_s
from hami_dra.patience import HangsError, Patience

_HANGS_S: Final = 3.0
_KEPT_S: Final = 1.0
"""How long a look is good for: neither kubelet nor driver is asked more often."""

_FAR: Final = 2**32

_log = logging.getLogger(__name__)
_Found = TypeVar("_Found")


class Source(StrEnum):
    """Where what is shown comes from."""

    CARDS = "cards"
    CLAIMS = "claims"
    POD_RESOURCES = "pod-resources"


class Looker:
    """Looks at one node; from any thread.

    Args:
        node: its name.
        cards: its cards.
        claims: the agent's directory of claims.
        containers: asks the kubelet.
        clock_ns: CLOCK_MONOTONIC, by which the agent notes when it measured.
    """

    def __init__(
        self,
        node: str,
        cards: Cards,
        claims: Path,
        containers: Callable[[], Sequence[Container]],
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._node = node
        self._cards = Patience(cards.read, _HANGS_S)
        self._claims = claims
        self._containers = containers
        self._clock_ns = clock_ns
        self._shares = Shares()
        self._counts = Counts()
        self._known: Sequence[CardReading] = ()
        self._failing: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._lock = threading.Lock()
        self._last: tuple[int, Snapshot] | None = None
        # Series that exist from the start let alerts see the first failure as an increase.
        self._errors = Counter[tuple[str, str]]({(source.value, ""): 0 for source in Source})
        self._refused = Counter[str]({file.value: 0 for file in claim_files.File})

    def problems(self) -> dict[str, str]:
        """Return why each source failed at the last look; empty for one that works."""
        return {source.value: self._failed.get(source.value, "") for source in Source}

    def look(self) -> Snapshot:
        """Return a snapshot that is no older than a second."""
        with self._lock:
            if self._last and self._clock_ns() - self._last[0] < _KEPT_S * 10**9:
                return self._last[1]
            self._failing = {}
            snapshot = self._look()
            self._tell()
            self._last = self._clock_ns(), snapshot
            return snapshot

    def _look(self) -> Snapshot:
        cards = self._read_cards()
        reading = self._ask(Source.CLAIMS, lambda: claim_files.read(self._claims), OSError)
        uses = None if reading is None else self._uses(reading)
        containers = self._ask(Source.POD_RESOURCES, self._containers, PodResourcesError)
        shown, unnamed = self._joined(cards, uses, containers)
        return Snapshot(
            node=self._node,
            cards=card_uses(cards, uses),
            containers=shown,
            claims=None if uses is None else len(uses),
            unnamed=unnamed,
            works={source.value: source.value not in self._failing for source in Source},
            measured_age_s=measured_age_s(reading.claims, self._clock_ns()) if reading else None,
            left_out=reading.left_out if reading else None,
            errors=dict(self._errors),
            refused=dict(self._refused),
        )

    @staticmethod
    def _joined(
        cards: Sequence[CardReading],
        uses: Sequence[ClaimUse] | None,
        containers: Sequence[Container] | None,
    ) -> tuple[tuple[ContainerUse, ...], int | None]:
        """Join containers with claims, if both are known."""
        if uses is None or containers is None:
            return (), None
        order = {card.uuid: place for place, card in enumerate(cards)}
        return container_uses(containers, uses, lambda uuid: order.get(uuid, _FAR))

    def _read_cards(self) -> Sequence[CardReading]:
        """Read the cards; those that were known keep their names while nobody can be asked."""
        found = self._ask(Source.CARDS, self._cards.ask, CardsError, HangsError)
        if found is None:
            return tuple(_silent(card) for card in self._known)
        for card in found:
            for what, error in card.errors:
                self._errors[what, card.uuid] += 1
                self._failing[f"{what} of card {card.uuid or card.index}"] = error
        self._known = [card for card in found if card.uuid]
        return self._known

    def _uses(self, reading: ClaimsReading) -> list[ClaimUse]:
        self._note_refused(reading)
        now_ns = self._clock_ns()
        uids = {claim.record.uid for claim in reading.claims}
        self._shares.forget_all_but(uids)
        self._counts.forget_all_but(uids)
        return [ClaimUse(claim, dict(self._devices(claim, now_ns))) for claim in reading.claims]

    def _devices(self, claim: ClaimReading, now_ns: int) -> list[tuple[str, DeviceUse]]:
        devices = claim.control.devices if claim.control else ()
        return [
            (
                device.uuid,
                DeviceUse(
                    limit_bytes=device.memory_bytes,
                    held=held(claim, number),
                    percent=self._shares.percent(claim, number, now_ns),
                    counted=self._counts.counted(claim, number),
                ),
            )
            for number, device in enumerate(devices)
        ]

    def _note_refused(self, reading: ClaimsReading) -> None:
        for refused in reading.refused:
            self._refused[refused.file.value] += 1
            self._failing[f"{refused.file.value} of claim {refused.uid}"] = refused.why

    def _ask(
        self, source: Source, question: Callable[[], _Found], *errors: type[Exception]
    ) -> _Found | None:
        """Ask a source; count and note a failure."""
        try:
            return question()
        except errors as error:
            self._errors[source.value, ""] += 1
            self._failing[source.value] = str(error)
            return None

    def _tell(self) -> None:
        """Log what began to fail, and what fails no more."""
        for what in self._failing.keys() - self._failed.keys():
            _log.warning("%s: %s", what, self._failing[what])
        for what in self._failed.keys() - self._failing.keys():
            _log.info("%s: no trouble any more", what)
        self._failed = self._failing


def _silent(card: CardReading) -> CardReading:
    """Return what is known of a card that says nothing now."""
    return replace(card, used_bytes=None, busy_percent=None, memory_busy_percent=None, errors=())
