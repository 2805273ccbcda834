"""The published slice has the agreed form, and every name in it is one that Kubernetes takes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration.quantity import parse
from hami_dra.node.devices import device_name, resource_slice, semver, slice_name
from hami_dra.node.simulated import PROFILES, cards

GOLDEN = Path(__file__).parent / "golden"
DRIVER = "hami-core-gpu.project-hami.io"
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NODES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_the_slice_is_the_golden_one(profile: str, *, request: pytest.FixtureRequest) -> None:
    found = resource_slice(cards(profile, 2, "node-1"), node="node-1", node_uid="u", driver=DRIVER)
    golden = GOLDEN / f"{profile}.json"
    if request.config.getoption("--update"):
        golden.write_text(json.dumps(found, indent=2) + "\n")

    assert found == json.loads(golden.read_text())


@given(node=NODES, count=st.integers(0, 64), profile=st.sampled_from(sorted(PROFILES)))
def test_devices_have_unique_names_that_are_dns_labels(node: str, count: int, profile: str) -> None:
    published = resource_slice(cards(profile, count, node), node=node, node_uid="u", driver=DRIVER)
    names = [device["name"] for device in published["spec"]["devices"]]

    assert len(set(names)) == count
    assert all(LABEL.fullmatch(name) for name in names)


@given(node=NODES)
def test_simulated_uuids_have_nvidias_form_and_stay(node: str) -> None:
    found = cards("l4-24g", 3, node)

    assert all(UUID.fullmatch(card.uuid) for card in found)
    assert found[:2] == cards("l4-24g", 2, node)
    assert not {card.uuid for card in found} & {
        card.uuid for card in cards("l4-24g", 3, f"{node}x")
    }


@given(split_count=st.integers(1, 100))
def test_amounts_obey_their_own_policy(split_count: int) -> None:
    (device,) = resource_slice(
        cards("h100-80g", 1, "n"), node="n", node_uid="u", driver=DRIVER, split_count=split_count
    )["spec"]["devices"]

    for capacity in device["capacity"].values():
        policy = capacity["requestPolicy"]
        if "validRange" not in policy:
            assert split_count == 1
            assert policy == {"default": "100", "validValues": ["100"]}
            continue
        least, most, step = (parse(policy["validRange"][k]).nanos for k in ("min", "max", "step"))
        default = parse(policy["default"]).nanos
        assert 0 <= least <= default <= most == parse(capacity["value"]).nanos
        assert least + step <= most
        assert default % step == most % step == least % step == 0
    assert int(device["capacity"]["slots"]["requestPolicy"]["default"]) == 100 // split_count


def test_memory_is_floored_to_mebibytes() -> None:
    (card,) = cards("l4-24g", 1, "n")
    odd = replace(card, memory_bytes=24152899583)

    (device,) = resource_slice([odd], node="n", node_uid="u", driver=DRIVER)["spec"]["devices"]

    assert device["capacity"]["memory"]["value"] == "23033Mi"


def test_a_text_longer_than_an_attribute_may_be_is_cut() -> None:
    """The API server refuses the whole slice for one."""
    (card,) = cards("l4-24g", 1, "n")
    odd = replace(card, product_name="x" * 65)

    (device,) = resource_slice([odd], node="n", node_uid="u", driver=DRIVER)["spec"]["devices"]

    assert device["attributes"]["productName"]["string"] == "x" * 64


def test_what_is_unknown_or_malformed_is_left_out() -> None:
    (card,) = cards("l4-24g", 1, "n")
    odd = replace(card, driver_version="550-server", pcie_root="")

    (device,) = resource_slice([odd], node="n", node_uid="u", driver=DRIVER)["spec"]["devices"]

    assert "driverVersion" not in device["attributes"]
    assert "resource.kubernetes.io/pcieRoot" not in device["attributes"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("12.4", "12.4.0"),
        ("535.54.03", "535.54.3"),
        ("8", "8.0.0"),
        ("", None),
        ("1.2.3.4", None),
        ("1.²", None),
        ("N/A", None),
    ],
)
def test_versions_are_made_semantic_or_left_out(text: str, version: str | None) -> None:
    assert semver(text) == version
    assert version is None or SEMVER.fullmatch(version)


@pytest.mark.parametrize("uuid", ["", "GPU_1", "GPU-" + "a" * 60])
def test_a_uuid_that_makes_no_label_is_refused(uuid: str) -> None:
    with pytest.raises(ValueError, match="expected the form"):
        device_name(uuid)


def test_a_name_longer_than_an_object_may_have_is_refused() -> None:
    with pytest.raises(ValueError, match="253"):
        slice_name("n" * 253, DRIVER)


@pytest.mark.parametrize("split_count", [0, 101])
def test_a_split_count_out_of_range_is_refused(split_count: int) -> None:
    with pytest.raises(ValueError, match="1 to 100"):
        resource_slice([], node="n", node_uid="u", driver=DRIVER, split_count=split_count)


def test_more_cards_than_a_slice_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 64"):
        resource_slice(cards("l4-24g", 129, "n"), node="n", node_uid="u", driver=DRIVER)


def test_an_unknown_profile_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="a100-80g, h100-80g, l4-24g"):
        cards("k80", 1, "n")
