"""What is known of a cluster's cards: sizes and names, never the cards themselves."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CardKind:
    """What cards of one kind have in common.

    Attributes:
        driver: the DRA driver that publishes them.
        model: their raw model name; empty when it is not published.
        memory_mib: the memory of each, in MiB.
    """

    driver: str
    model: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Cards:
    """What is known of the cluster's cards, as aggregates.

    Attributes:
        bare_mib: sizes in MiB of shareable cards of which nothing else is known.
        kinds: the kinds of shareable cards.
    """

    bare_mib: frozenset[int] = frozenset()
    kinds: frozenset[CardKind] = frozenset()

    @property
    def memory_mib(self) -> frozenset[int]:
        """Return the different sizes of all cards, in MiB."""
        return self.bare_mib | {kind.memory_mib for kind in self.kinds}

    def largest(self) -> dict[str, int]:
        """Return the size of the largest card of each driver, in MiB."""
        found: dict[str, int] = {}
        for kind in self.kinds:
            found[kind.driver] = max(kind.memory_mib, found.get(kind.driver, 0))
        return found

    def sizes(self, driver: str, accepts: Callable[[str], bool]) -> tuple[int, ...]:
        """Return the sizes, ascending, of the cards that a pod may get.

        Where none of the driver's models is accepted, all of its sizes are returned: such a pod
        waits for a card that is not there yet, and one of these sizes is the best guess.

        Args:
            driver: whose cards.
            accepts: tells whether the pod accepts a model.
        """
        own = [kind for kind in self.kinds if kind.driver == driver]
        wanted = [kind for kind in own if accepts(kind.model)] or own
        return tuple(sorted(self.bare_mib | {kind.memory_mib for kind in wanted}))
