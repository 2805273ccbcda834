"""Where cards come from: NVIDIA's driver, or a simulation (ruling 41)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from hami_dra.node import simulated
from hami_dra.node.cdi import NodeEdits
from hami_dra.node.inventory import Card
from hami_dra.node.meter import Measured

_SIGNS: Final = ("dev/nvidiactl", "proc/driver/nvidia/version")


FindEdits: TypeAlias = Callable[[Sequence[Card]], NodeEdits]
"""Find out what containers need to use cards, or raise a `BackendError`."""


UNREADABLE: Final = "unreadable"
"""Code of the trouble of a card that does not answer."""


LOST: Final = "lost"
"""Code of the trouble of a card that nobody can use until the node is rebooted."""


class BackendError(Exception):
    """The cards cannot be found or used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class CardTrouble:
    """What is wrong with a card.

    Attributes:
        code: a short name, fit for the value of a label, such as `xid-79`.
        message: a sentence.
    """

    code: str
    message: str


class Backend(Protocol):
    """A source of cards."""

    @property
    def name(self) -> str:
        """Name it for people."""

    def cards(self) -> Sequence[Card]:
        """Return the cards of this node, the preferred ones first.

        Raises:
            BackendError: if they cannot be found now.
        """

    def troubles(self) -> Mapping[str, CardTrouble]:
        """Return what is wrong with cards, by UUID."""

    def edits(self) -> NodeEdits:
        """Return what containers need to use the cards.

        Raises:
            BackendError: if that cannot be found out now.
        """

    @property
    def is_measurable(self) -> bool:
        """Tell whether cards tell of the processes that use them."""

    def processes(self, uuid: str) -> Mapping[int, Measured]:
        """Return what each process did on a card since the last question, by its id on the node.

        Raises:
            BackendError: if this card does not tell now.
        """


class SimulatedCards:
    """Cards that do not exist: they can be shared out, and nothing can be computed on them.

    Args:
        profile: their model.
        count: how many.
        node: this node's name; the same node always has the same cards.
        root: of the file system in which real cards would show.

    Raises:
        BackendError: if real cards exist, because pods would be sent to cards that do not.
    """

    name = "simulated"
    is_measurable = False

    def __init__(self, profile: str, count: int, node: str, *, root: Path = Path("/")) -> None:
        if (sign := real_cards(root)) is not None:
            raise BackendError(
                f"found {sign}, so this node has real NVIDIA cards, and simulated ones would"
                " mislead the scheduler: use --devices nvml here"
            )
        try:
            self._cards = simulated.cards(profile, count, node)
        except simulated.UnknownProfileError as error:
            raise BackendError(str(error)) from error

    def cards(self) -> Sequence[Card]:
        """Return the cards."""
        return self._cards

    def troubles(self) -> Mapping[str, CardTrouble]:
        """Return nothing: what does not exist does not break."""
        return {}

    def edits(self) -> NodeEdits:
        """Return what tells a container that its cards are simulated."""
        return NodeEdits(common={"env": ["HAMI_DRA_SIMULATED=1"]})

    def processes(self, _: str) -> Mapping[int, Measured]:
        """Return nothing: nobody computes on them."""
        return {}


class NoCards:
    """A node without cards, on which the agent runs idle."""

    name = "none"
    is_measurable = False

    def cards(self) -> Sequence[Card]:
        """Return nothing."""
        return ()

    def troubles(self) -> Mapping[str, CardTrouble]:
        """Return nothing."""
        return {}

    def edits(self) -> NodeEdits:
        """Return nothing."""
        return NodeEdits()

    def processes(self, _: str) -> Mapping[int, Measured]:
        """Return nothing."""
        return {}


def real_cards(root: Path = Path("/")) -> Path | None:
    """Return what shows that NVIDIA's driver runs on this node, or None."""
    return next((root / sign for sign in _SIGNS if (root / sign).exists()), None)
