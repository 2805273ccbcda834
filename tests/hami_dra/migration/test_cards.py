"""A percentage is of the cards that a pod accepts, and of nobody else's."""

import pytest

from hami_dra.migration import CardKind, Cards, Json, Policy, migrate

NVIDIA = "hami-core-gpu.project-hami.io"
POLICY = Policy(kubernetes="1.37")
A100 = CardKind(NVIDIA, "NVIDIA A100-SXM4-80GB", 81920)
A100_SMALL = CardKind(NVIDIA, "NVIDIA A100-PCIE-40GB", 40960)
L4 = CardKind(NVIDIA, "NVIDIA L4", 23034)
NAMELESS = CardKind(NVIDIA, "", 16384)
OTHER = CardKind("npu.example.com", "910B3", 65536)
ALL = Cards(kinds=frozenset({A100, A100_SMALL, L4, NAMELESS, OTHER}))


def sizes(annotations: Json, cards: Cards = ALL) -> list[str]:
    """Return the amounts of memory that half a card is, in the order of preference."""
    limits = {"nvidia.com/gpumem-percentage": 50}
    pod = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    [template] = migrate(pod, POLICY, cards).templates
    [request] = template.spec["spec"]["devices"]["requests"]
    forms = [request["exactly"]] if "exactly" in request else request["firstAvailable"]
    return [form["capacity"]["requests"]["memory"] for form in forms]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ["8192Mi", "11517Mi", "20480Mi", "40960Mi"]),
        ({"nvidia.com/use-gputype": "l4"}, ["11517Mi"]),
        ({"nvidia.com/use-gputype": "NVIDIA-NVIDIA L4"}, ["11517Mi"]),
        ({"nvidia.com/use-gputype": "a100"}, ["20480Mi", "40960Mi"]),
        ({"nvidia.com/nouse-gputype": "a100"}, ["8192Mi", "11517Mi"]),
        ({"nvidia.com/use-gputype": "a100", "nvidia.com/nouse-gputype": "pcie"}, ["40960Mi"]),
    ],
)
def test_only_the_models_that_a_pod_accepts_count(annotations: Json, expected: list[str]) -> None:
    assert sizes(annotations) == expected


def test_a_pod_for_models_that_are_not_there_waits_for_any_size() -> None:
    assert sizes({"nvidia.com/use-gputype": "h200"}) == sizes({})


def test_cards_of_which_only_the_size_is_known_count_for_everybody() -> None:
    cards = Cards(frozenset({1000}), frozenset({L4, A100}))

    assert sizes({"nvidia.com/use-gputype": "l4"}, cards) == ["500Mi", "11517Mi"]
    assert cards.memory_mib == {1000, 23034, 81920}
