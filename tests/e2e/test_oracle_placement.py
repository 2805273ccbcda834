"""Who fits where and gets what, against what HAMi v2.10.0 answered (ruling 1), on a real scheduler.

One situation in seven is played, or all with `--all-placements`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import pytest

from hami_dra.kube.session import Session
from hami_dra.migration import Policy
from tests.e2e.ledger import Ledger
from tests.e2e.placement import Played, play
from tests.e2e.situations import Situation, obstacle, one_in, owed, read
from tests.e2e.stage import Stage
from tests.e2e.world import World
from tests.oracle import is_early
from tests.versions import Kubernetes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

ONE_IN = 7
AT_ONCE = 100

UNKNOWN: Final = "?"
NOT_PLAYED: Final = {"unhealthy card": 67, "MIG card": 8, "cordoned card": 1}


class Count(NamedTuple):
    """In how many steps a difference occurs.

    Attributes:
        chosen: of the situations that are played by default.
        apart: of the same, where each card of a claim is a request of its own (ruling 10).
        lone: of those of them with a single card.
        every: of all situations.
    """

    chosen: int
    apart: int
    lone: int
    every: int


KEPT: Final = "init containers free nothing when they end (ruling 15)"
INSIDE: Final = "an init container uses an app's share, not another card's (ruling 15)"
BESIDE: Final = "an init container's own share comes on top of the app's (ruling 15)"
TOO_MUCH: Final = "an init container's own share has no room beside the app's (ruling 15)"
PART_OF_SIZES: Final = "several cards by percentage must be of one size (open, ruling 7)"
SCALED: Final = "exclusive on a card with scaled cores (ruling 4)"
NO_CORES: Final = "a card without free cores lends memory to pods without a core limit (ruling 2)"
GREED: Final = "greed: legacy took the first cards that it saw (oracle)"
NUMA: Final = "numa-bind is a notice (ruling 14)"
WEIGHTS: Final = "malformed weights do not stop a pod (ruling 14)"
BYTES: Final = "amount meant as bytes refused (ruling 6)"
WRAPPED: Final = "beyond 32 bits refused, not wrapped (ruling 9)"
SEPARATORS: Final = "use-list of separators refused, not left waiting (ruling 12)"
MODE: Final = "mode that no DeviceClass offers refused, not left waiting (ruling 14)"

DIFFERENCES: Final = {
    BESIDE: Count(28, 28, 6, 199),
    KEPT: Count(31, 31, 12, 177),
    TOO_MUCH: Count(23, 22, 12, 163),
    BYTES: Count(10, 10, 5, 67),
    PART_OF_SIZES: Count(11, 1, 0, 48),
    GREED: Count(7, 7, 0, 34),
    NUMA: Count(6, 6, 0, 25),
    NO_CORES: Count(1, 1, 0, 9),
    INSIDE: Count(1, 2, 0, 9),
    SCALED: Count(3, 3, 1, 8),
    MODE: Count(0, 0, 0, 8),
    SEPARATORS: Count(0, 0, 0, 4),
    WEIGHTS: Count(0, 0, 0, 4),
    WRAPPED: Count(0, 0, 0, 1),
}


def difference(played: Played) -> str | None:
    """Return the name of a difference, None for agreement, and UNKNOWN for one without a ruling."""
    if played.step["op"] == "pod":
        return of_pod(played)
    frees = played.step["op"] == "init-done" and "booked" in played.step
    return KEPT if frees else None


def of_pod(played: Played) -> str | None:
    """Compare what became of a pod."""
    step, outcome = played.step, played.outcome
    if not step["admitted"]:
        return None if outcome.rejected else UNKNOWN
    if outcome.rejected:
        return rejection(played)
    if not step.get("managed"):
        # Where no card is asked for, nothing is held, and both let the pod run.
        return UNKNOWN if outcome.held or outcome.shares is None else None
    if step["fits"] != (outcome.shares is not None):
        reasons = REFUSED_BY_US if step["fits"] else PLACED_BY_US
        return next((name for name, holds in reasons if holds(played)), UNKNOWN)
    return amounts(played) if step["fits"] else None


def amounts(played: Played) -> str | None:
    """Compare what a placed pod holds: container by container, and in all."""
    shares = played.outcome.shares or {}
    due = owed(played.step, played.situation)
    if not all(each.is_met_by(shares[name]) for name, each in due.items()):
        return UNKNOWN
    ours, legacy = totals(played), legacy_totals(played)
    if not asks_early(played) or ours == legacy:
        return None
    return BESIDE if ours > legacy else INSIDE


def totals(played: Played) -> tuple[int, int]:
    """Return the memory and cores that our pod holds in all."""
    held = played.outcome.held
    return sum(share.memory_mib for share in held), sum(share.cores for share in held)


def legacy_totals(played: Played) -> tuple[int, int]:
    """Return the memory and cores that legacy booked for the pod in all."""
    booked = played.step["booked"].values()
    return sum(memory for _, memory, _ in booked), sum(cores for _, _, cores in booked)


def asks_early(played: Played) -> bool:
    """Tell whether an init container or a sidecar asks for a card."""
    step = played.step
    containers = zip(step["pod"]["containers"], step["tuples"], strict=True)
    return any(is_early(container) and asked["nums"] > 0 for container, asked in containers)


def has_scaled_cores(played: Played) -> bool:
    """Tell whether a card of the node has more or less than 100 percent of cores."""
    return any(card["cores"] != 100 for card in played.situation.cards.values())


def is_on_a_card_without_free_cores(played: Played) -> bool:
    """Tell whether our pod holds a share without cores of a card that had none left."""
    used_up = played.situation.used_up(played.number)
    return any(share.uuid in used_up and not share.cores for share in played.outcome.held)


def wants_parts_of_several_sizes(played: Played) -> bool:
    """Tell whether a container wants a percentage of several cards, and sizes differ."""
    sizes = {card["mem"] for card in played.situation.cards.values()}
    return len(sizes) > 1 and any(
        asked["nums"] > 1 and not asked["mem"] and 0 < asked["pct"] < 100
        for asked in played.step["tuples"]
    )


def has_bad_weights(played: Played) -> bool:
    """Tell whether weights of a pod are such that legacy gave up on it."""
    return "hami.io/device-scoring-weights" in played.step["pod"].get("annotations", {})


Reasons = Sequence[tuple[str, Callable[[Played], bool]]]

REFUSED_BY_US: Final[Reasons] = (
    (TOO_MUCH, asks_early),
    (PART_OF_SIZES, wants_parts_of_several_sizes),
    (SCALED, has_scaled_cores),
)
PLACED_BY_US: Final[Reasons] = (
    (NUMA, lambda played: "NumaNotFit" in played.step["why"]),
    (WEIGHTS, has_bad_weights),
    (GREED, lambda played: played.step["feasible"]),
    (NO_CORES, is_on_a_card_without_free_cores),
)


def rejection(played: Played) -> str:
    """Name the ruling that asks for a rejection."""
    reason, fits = played.outcome.rejected, played.step.get("fits")
    for text, name, where_legacy_ran_it in (
        ("not bytes", BYTES, True),
        ("2147483647", WRAPPED, True),
        ("matches no card", SEPARATORS, False),
        ("vgpu-mode", MODE, False),
    ):
        if text in reason and (where_legacy_ran_it or not fits):
            return name
    return UNKNOWN


async def play_all(
    session: Session, namespace: str, situations: Sequence[Situation], *, kubernetes: str
) -> list[Played]:
    """Play situations and return when nothing is left of them."""
    ledger = Ledger(session, namespace)
    async with ledger.following():
        stage = Stage(session, namespace, ledger)
        played = await play(stage, situations, kubernetes=kubernetes, at_once=AT_ONCE)
        await ledger.emptied()
    return played


def choose(*, every: bool, kubernetes: Kubernetes) -> tuple[list[Situation], str]:
    """Return the situations to play, and which field of a `Count` says what differs in them."""
    possible = [situation for situation in read() if not obstacle(situation)]
    if every:
        return possible, "every"
    chosen = one_in(ONE_IN, possible)
    if not kubernetes.tells_cards_apart:
        return [situation for situation in chosen if len(situation.cards) == 1], "lone"
    return chosen, "apart" if Policy(kubernetes=str(kubernetes)).repeats_cards else "chosen"


def test_what_is_not_played_is_counted() -> None:
    found = Counter(map(obstacle, read()))

    assert found.pop(None) == 1898
    assert found == NOT_PLAYED


def test_pods_fit_where_they_fitted_in_legacy_and_hold_what_they_held(
    world: World, pytestconfig: pytest.Config
) -> None:
    every = pytestconfig.getoption("--all-placements")
    situations, column = choose(every=every, kubernetes=world.kubernetes)

    played = world.scene.api.run(
        lambda session: play_all(
            session, world.namespace, situations, kubernetes=str(world.kubernetes)
        )
    )

    named = [(difference(each), each) for each in played]
    assert [each for name, each in named if name == UNKNOWN] == []
    found = Counter(name for name, _ in named)
    agreed = found.pop(None)
    expected = {name: getattr(count, column) for name, count in DIFFERENCES.items()}
    assert found == Counter(expected)
    assert agreed + found.total() == len(played)
