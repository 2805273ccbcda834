"""Annotations that pick cards place pods where legacy placed them (rulings 12 and 13)."""

import pytest

from tests.e2e.world import World, pod

pytestmark = pytest.mark.cluster

TYPE, NO_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
UUID, NO_UUID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"

BY_TYPE = {
    "a100": ({TYPE: "a100"}, "A100"),
    "upper-case": ({TYPE: "SXM4"}, "A100"),
    "lower-case": ({TYPE: "nvidia l4"}, "L4"),
    "one-of-several": ({TYPE: "V100, L4 ,"}, "L4"),
    "as-old-releases-said": ({TYPE: "NVIDIA-NVIDIA L4"}, "L4"),
    "not": ({NO_TYPE: "A100"}, "L4"),
    "not-wins": ({TYPE: "NVIDIA", NO_TYPE: "l4"}, "A100"),
    "blank-is-no-choice": ({TYPE: "L4", NO_TYPE: " "}, "L4"),
}

IMPOSSIBLE = {
    "no-such-type": {TYPE: "H200"},
    "both": {TYPE: "A100", NO_TYPE: "A100"},
    "no-such-card": {UUID: "GPU-00000000-0000-0000-0000-000000000000"},
    "cel-is-only-text": {TYPE: '"] || true || ["'},
    "cel-is-only-text-in-uuids": {UUID: 'x"] || true || "" in ["'},
}


def test_types_are_parts_of_names_in_any_case(world: World) -> None:
    world.add_node("a", a100_80g=1)
    world.add_node("b", l4_24g=1)
    world.apply(*(pod(n, {"gpumem": 100}, annotations=a) for n, (a, _) in BY_TYPE.items()))

    found = {name: world.share(name).product for name in BY_TYPE}

    assert all(model in found[name] for name, (_, model) in BY_TYPE.items()), found


def test_uuids_are_exact(world: World) -> None:
    first, second, third = world.add_node("a", a100_80g=3)
    choices = {
        "last": {UUID: third.uuid},
        "one-of-two": {UUID: f" {second.uuid} , {third.uuid},", NO_UUID: third.uuid},
        "not": {NO_UUID: f"{first.uuid},{second.uuid}"},
    }
    world.apply(*(pod(n, {"gpumem": 100}, annotations=a) for n, a in choices.items()))

    found = {name: world.share(name).uuid for name in choices}

    assert found == {"last": third.uuid, "one-of-two": second.uuid, "not": third.uuid}


def test_an_impossible_choice_waits(world: World) -> None:
    [card] = world.add_node("a", a100_80g=1)
    impossible = {**IMPOSSIBLE, "lower-case-uuid": {UUID: card.uuid.lower()}}
    world.apply(*(pod(n, {"gpumem": 100}, annotations=a) for n, a in impossible.items()))

    reasons = {name: world.await_refused(name) for name in impossible}

    assert all("cannot allocate all claims" in reason for reason in reasons.values()), reasons
