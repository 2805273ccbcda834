"""What a container is given, as a runtime applies it and by an independent reading of CDI."""

from pathlib import Path

import pytest

from hami_dra.migration import Json
from hami_dra.node import cdi
from hami_dra.node.cdi import Mount, NodeEdits
from hami_dra.node.prepare import Node, plan
from hami_dra.node.share import card_limits
from tests.hami_dra.node.cdi_validator import edits_for, validate_all
from tests.hami_dra.node.claims import CARDS, DRIVER, NODE, claim, nobody, result

CARDS_BY_UUID = {card.uuid: card for card in CARDS}


def seen(directory: Path, *results: Json, taken: slice = slice(None), **edits: Json) -> Json:
    """Return what a container sees that takes some of a claim's results."""
    uid = "11111111-2222-3333-4444-555555555555"
    shares = plan(claim(*results, uid=uid), Node(NODE, DRIVER, CARDS_BY_UUID), nobody)
    document = cdi.spec(
        uid,
        shares,
        card_limits(shares, CARDS_BY_UUID),
        edits=NodeEdits(**edits),
        mounts=cdi.claim_mounts(uid, "/run/claims/x"),
    )
    (directory / cdi.file_name(uid)).write_bytes(cdi.render(document))
    ids = tuple(cdi.device_id(uid, share) for share in shares)
    return edits_for(validate_all(directory, root=None), ids[taken])


def limits_of(found: Json) -> dict[str, str]:
    return {name: text for name, text in found["env"].items() if "_LIMIT" in name}


def test_two_cards_have_their_own_limits_in_cuda_order(tmp_path: Path) -> None:
    found = seen(tmp_path, result(2, memory="8Gi", cores="0"), result(0, memory="4Gi"))

    assert limits_of(found) == {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "4096m",
        "CUDA_DEVICE_SM_LIMIT_0": "30",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "8192m",
        "CUDA_DEVICE_SM_LIMIT_1": "0",
    }
    assert found["env"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert found["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_one_card_twice_shows_the_sum_under_one_number(tmp_path: Path) -> None:
    found = seen(tmp_path, result(1), result(1, memory="2Gi", cores="20"))

    assert limits_of(found) == {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "6144m",
        "CUDA_DEVICE_SM_LIMIT_0": "50",
    }


def test_a_container_that_takes_one_request_of_two_is_never_without_a_limit(
    tmp_path: Path,
) -> None:
    big = result(1, memory="40Gi", cores="60", request="big")
    small = result(0, memory="4Gi", request="small")

    found = seen(tmp_path, small, big, taken=slice(1, 2))

    # Its only card is number 0 to it, and only the variables without a number say so.
    assert limits_of(found) == {
        "CUDA_DEVICE_MEMORY_LIMIT": "4096m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "40960m",
        "CUDA_DEVICE_SM_LIMIT_1": "60",
    }


def test_an_unlimited_card_is_not_held_to_the_limit_of_another(tmp_path: Path) -> None:
    found = seen(tmp_path, result(0, cores="0", request="a"), result(1, request="b"))

    assert "CUDA_DEVICE_SM_LIMIT" not in found["env"]


def test_limits_are_read_only_and_books_writable_below_the_claims_own_name(tmp_path: Path) -> None:
    found = seen(tmp_path, result())

    [control, usage] = [found["mounts"][path] for path in sorted(found["mounts"])]
    assert control["containerPath"].startswith("/run/vgpu/claims/11111111-")
    assert control["hostPath"] == "/run/claims/x/control"
    assert "ro" in control["options"]
    assert "rw" in usage["options"]


def test_a_card_brings_its_device_nodes_and_all_cards_what_they_share(tmp_path: Path) -> None:
    nodes = {card.uuid: {"deviceNodes": [{"path": f"/dev/nvidia{card.minor}"}]} for card in CARDS}
    common: Json = {"deviceNodes": [{"path": "/dev/nvidiactl"}], "env": ["A=1"]}

    found = seen(tmp_path, result(0), result(2), taken=slice(1, 2), common=common, cards=nodes)

    assert found["nodes"] == ["/dev/nvidiactl", "/dev/nvidia2"]
    assert found["env"]["A"] == "1"


def test_equal_specs_are_equal_bytes() -> None:
    assert cdi.render({"b": 1, "a": 2}) == cdi.render({"a": 2, "b": 1})


@pytest.mark.parametrize("name", ["other.json", ".tmp-hami-dra.io-claim_x.json", "claim_x.json"])
def test_files_of_others_are_not_ours(name: str) -> None:
    assert cdi.claim_uid(name) is None


def test_a_library_may_be_mapped_as_a_program() -> None:
    library = Mount("/lib/x.so", "/lib/libvgpu.so", may_execute=True).as_json()

    assert library["options"] == ["ro", "nosuid", "nodev", "bind"]
