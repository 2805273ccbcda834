"""Annotations that pick cards, against what HAMi v2.10.0 answered for each card (rulings 12-14).

Our conditions are evaluated by Kubernetes' own code, on cards as our driver publishes them.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Final

import pytest
from ruamel.yaml import YAML

from hami_dra.lab.webhook import manifests
from hami_dra.migration import Cards, Json, Policy, RejectedPod, migrate
from hami_dra.migration.selector import model_test
from hami_dra.node.devices import resource_slice
from tests.e2e.cards import found
from tests.e2e.celeval import Answer, Question, ask
from tests.oracle import cases

pytestmark = pytest.mark.cluster

CARD_MIB = 40960
FAMILY = Policy().families[0]
TYPES = ("nvidia.com/use-gputype", "nvidia.com/nouse-gputype")
UUIDS = {"nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"}
MODE = "nvidia.com/vgpu-mode"
OFFERED_MODE = "hami-core"
STAND_IN_UUID = "GPU-0"

NO_UUID: Final = "card without a UUID, which nobody publishes (oracle)"
REJECTED_MODE: Final = "mode that no DeviceClass offers rejected (ruling 14)"
OTHER_MODE: Final = "card shared in another mode, which our class has not (ruling 14)"
DIFFERENCES: Final = {
    OTHER_MODE: 292,
    "use-list of separators rejected (ruling 12)": 191,
    REJECTED_MODE: 171,
    "control characters rejected (ruling 13)": 69,
    "letters beyond ASCII not folded (ruling 12)": 49,
    "name of older releases accepted (ruling 12)": 37,
    NO_UUID: 2,
}


@dataclass(frozen=True, slots=True)
class Ours:
    """What we make of a case.

    Attributes:
        rejected: why `migrate` rejects the pod; empty when it does not.
        selectors: the conditions that it writes otherwise.
    """

    rejected: str = ""
    selectors: tuple[str, ...] = ()


@cache
def class_selectors() -> tuple[str, ...]:
    """Return the conditions of the DeviceClass that we ship."""
    shipped = YAML(typ="safe").load(manifests() / "base" / "deviceclass.yaml")
    return tuple(each["cel"]["expression"] for each in shipped["spec"]["selectors"])


def convert(annotations: Json) -> Ours:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    pod: Json = {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [container]},
    }
    try:
        [template] = migrate(pod, Policy(), Cards(frozenset({CARD_MIB}))).templates
    except RejectedPod as rejected:
        return Ours(rejected=str(rejected))
    [request] = template.spec["spec"]["devices"]["requests"]
    written = request["exactly"].get("selectors", ())
    return Ours(selectors=tuple(each["cel"]["expression"] for each in written))


def publish(card: Json) -> Json:
    """Return a recorded card as a device of our slice.

    The UUID is put in afterwards: some here are such that no device name can hold them.
    """
    made = found(STAND_IN_UUID, card["nvml"], CARD_MIB)
    published = resource_slice([made], node="n", node_uid="u", driver=FAMILY.driver)
    [device] = published["spec"]["devices"]
    attributes = {key: value for key, value in device["attributes"].items() if key != "uuid"}
    if card["uuid"]:
        attributes["uuid"] = {"string": card["uuid"]}
    return {**device, "attributes": attributes}


def compare(case: Json, ours: Ours, answer: Answer) -> str | None:
    """Return the name of a difference, None for agreement; fail for one without a ruling."""
    matches = answer.matches and not ours.rejected
    legacy = case["type_ok"] and case["uuid_ok"] and case["mode_ok"]
    if matches == legacy and not ours.rejected:
        return None
    name = rejection(case, ours.rejected) if ours.rejected else selection(case, matches=matches)
    if name is None or answer.refused or answer.failed:
        pytest.fail(f"{case['id']}: {case['annotations']} on {case['card']}: {ours}, {answer}")
    return name


def rejection(case: Json, reason: str) -> str | None:
    """Name the ruling that asks for a rejection where legacy let the pod wait."""
    if "control character" in reason:
        return "control characters rejected (ruling 13)"
    if "matches no card" in reason:
        return "use-list of separators rejected (ruling 12)" if case["card"]["uuid"] else NO_UUID
    if MODE in reason and OFFERED_MODE not in case["annotations"][MODE]:
        return REJECTED_MODE if case["card"]["mode"] == OFFERED_MODE else OTHER_MODE
    return None


def selection(case: Json, *, matches: bool) -> str | None:
    """Name the ruling that asks for another choice of cards, judged by what is in the case."""
    mode, card = case["annotations"].get(MODE), case["card"]
    if not card["uuid"]:
        return NO_UUID
    if mode is not None and card["mode"] != OFFERED_MODE:
        offered = case["type_ok"] and case["uuid_ok"] and OFFERED_MODE in mode
        return OTHER_MODE if matches == offered else None
    texts = [case["annotations"].get(name, "") for name in TYPES]
    members = [member.strip().upper() for text in texts for member in text.split(",")]
    old, registered = f"NVIDIA-{card['nvml']}".upper(), card["type"].upper()
    if any(member in old and member not in registered for member in members):
        return "name of older releases accepted (ruling 12)"
    if not "".join([*texts, card["nvml"]]).isascii():
        return "letters beyond ASCII not folded (ruling 12)"
    return None


def test_every_annotation_picks_the_cards_that_it_picked_in_legacy(
    kube_version: str | None,
) -> None:
    """Every recorded choice is ours too, or a difference that a ruling names."""
    recorded = list(cases("cardtype"))
    ours = [convert(case["annotations"]) for case in recorded]
    answers = ask(
        (
            Question(FAMILY.driver, publish(case["card"]), (*class_selectors(), *made.selectors))
            for case, made in zip(recorded, ours, strict=True)
        ),
        kube_version,
    )

    counted = Counter(map(compare, recorded, ours, answers))
    # What a percentage is of is chosen by our own test of models, which must be the conditions'.
    for case, made, answer in zip(recorded, ours, answers, strict=True):
        if not made.rejected and UUIDS.isdisjoint(case["annotations"]):
            accepts = model_test(case["annotations"], FAMILY)
            assert accepts(case["card"]["nvml"]) == answer.matches, case

    agreed = counted.pop(None)
    assert counted == DIFFERENCES
    assert agreed + counted.total() == 4743


def test_the_longest_lists_are_rejected_here_before_the_api_server_does(
    kube_version: str | None,
) -> None:
    """Whatever passes `migrate` passes the API server's limits on length and cost."""
    lists = {
        f"{name} x{count}": {name: ",".join(f"{member}{n}" for n in range(count))}
        for name, member in (
            ("nvidia.com/use-gputype", "NVIDIA GeForce RTX "),
            ("nvidia.com/nouse-gputype", "L"),
            ("nvidia.com/use-gpuuuid", "GPU-8d1f5a3c-77aa-4b1e-9c00-d0e1f2a3b4c5-"),
            ("nvidia.com/nouse-gpuuuid", "GPU-"),
        )
        for count in (1, 10, 50, 100, 150, 200, 400, 1000, 3000)
    }
    ours = {title: convert(annotations) for title, annotations in lists.items()}
    passed = {title: made.selectors for title, made in ours.items() if not made.rejected}
    device = publish({"nvml": "NVIDIA L4", "uuid": "GPU-1"})

    answers = ask((Question(FAMILY.driver, device, each) for each in passed.values()), kube_version)

    assert [
        (title, answer.refused, answer.failed)
        for title, answer in zip(passed, answers, strict=True)
        if answer.refused or answer.failed
    ] == []
    assert 0 < len(passed) < len(lists)
