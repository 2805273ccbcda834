"""A pod costs as much as it is long, and not the square of that.

All pods wait while one is read, and whoever may create pods decides how long one is. What is
counted is calls, since time depends on the machine.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pytest

from hami_dra.migration import Json, RejectedPod, migrate
from hami_dra.migration.pod import MOST_CONTAINERS
from tests.pods import CARDS, POLICY

TIMES = 4


class Key(str):
    """A key whose comparisons are calls, so that looking through a list of them is counted."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


def pod_of(containers: int, *, ordinary: int = 0, **spec: object) -> Json:
    # Names so long that the pod is not remembered as a whole.
    asking = [
        {"name": f"c{number:0250}", "resources": {"limits": {"nvidia.com/gpumem": 1000 + number}}}
        for number in range(containers)
    ]
    others = [{"name": f"o{number}", "env": [{"name": "A"}]} for number in range(ordinary)]
    return {"metadata": {}, "spec": {"containers": [*asking, *others], **spec}}


def annotated(annotations: dict[str, str]) -> Json:
    return pod_of(1) | {"metadata": {"annotations": annotations}}


def with_containers(size: int) -> Json:
    return pod_of(size // 64)


def with_ordinary_containers(size: int) -> Json:
    return pod_of(1, ordinary=size)


def with_entries(size: int) -> Json:
    entries = [{"name": Key(f"gpu-c{number}")} for number in range(size)]
    return pod_of(size // 64, resourceClaims=entries)


def with_marks(size: int) -> Json:
    return annotated({Key(f"hami.io/vgpu-{number}"): "" for number in range(size)})


def with_types(size: int) -> Json:
    return annotated({"nvidia.com/use-gputype": ",".join(map(str, range(size)))})


def with_one_type(size: int) -> Json:
    return annotated({"nvidia.com/nouse-gputype": "L4, " * 2 * size})


def effort(pod: Json) -> int:
    """Return how many calls it takes to migrate a pod, apart from what is remembered of it."""
    calls = 0
    outcome(pod)

    def count(_frame: FrameType, _event: str, _argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        outcome(pod)
    finally:
        sys.setprofile(None)
    return calls


def outcome(pod: Json) -> None:
    with suppress(RejectedPod):
        migrate(pod, POLICY, CARDS)


@pytest.mark.parametrize(
    "made",
    [
        with_containers,
        with_ordinary_containers,
        with_entries,
        with_marks,
        with_types,
        with_one_type,
    ],
)
def test_a_pod_that_is_longer_costs_as_much_more(made: Callable[[int], Json]) -> None:
    size = 2048

    assert effort(made(size * TIMES)) < effort(made(size)) * (TIMES + 1)


def test_a_list_too_long_for_a_condition_is_refused_before_one_is_built() -> None:
    """The other way round a list of 3 MiB makes all other pods wait for seconds."""
    members = 50_000

    assert effort(with_types(members)) < 5 * members


def test_a_pod_of_more_containers_than_a_node_holds_is_refused() -> None:
    """Each may need a template of its own, which stays when the API server refuses the pod."""
    assert len(migrate(pod_of(MOST_CONTAINERS), POLICY, CARDS).claims) == MOST_CONTAINERS

    with pytest.raises(RejectedPod, match=r"found 257 containers .*, expected at most 256"):
        migrate(pod_of(MOST_CONTAINERS + 1), POLICY, CARDS)
