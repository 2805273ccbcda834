"""How strictly a claim is held to its limits: the node's word, and what the claim may wish for."""

from pathlib import Path

import pytest

from hami_dra.migration import Json
from hami_dra.migration.names import CORE_POLICY, PRIORITY
from hami_dra.node.allocation import PrepareError
from hami_dra.node.limits import ClaimFlag, Control, CorePolicy, decode_control
from hami_dra.node.strictness import LIBRARY, Strictness
from tests.hami_dra.node.claims import Disk, claim, result

LENIENT = Strictness(may_disable=True)


def wishing(**wishes: str) -> Json:
    """Make a claim with annotations."""
    names = {"priority": PRIORITY, "core_policy": CORE_POLICY, "library": LIBRARY}
    made = claim(result())
    made["metadata"]["annotations"] = {names[name]: text for name, text in wishes.items()}
    return made


def control(disk: Disk, wanted: Json) -> Control:
    """Return what the library in the claim's containers reads."""
    return decode_control(
        (disk.directories.claim(wanted["metadata"]["uid"]) / "control").read_bytes()
    )


def test_a_claim_that_wishes_for_nothing_is_held_as_the_node_says(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.host.how = Strictness(CorePolicy.FORCE, may_disable=True)
    wanted = claim(result())
    disk.start().prepare(wanted)

    found = control(disk, wanted)
    assert (found.core_policy, found.priority) == (CorePolicy.FORCE, 1)
    assert found.flags is ClaimFlag.ALLOW_DISABLE


def test_wishes_of_the_claim_reach_the_library_and_outlive_the_agent(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.host.how = LENIENT
    wanted = wishing(priority="0", core_policy="disable")
    disk.start().prepare(wanted)
    (disk.directories.claim(wanted["metadata"]["uid"]) / "control").unlink()

    disk.host.how = Strictness()
    disk.start()

    found = control(disk, wanted)
    assert (found.core_policy, found.priority) == (CorePolicy.DISABLE, 0)
    assert found.flags is ClaimFlag.ALLOW_DISABLE, "as it was when the claim was prepared"


def test_a_claim_can_do_without_the_library(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.host.how, disk.host.digest = LENIENT, "d" * 64
    claims = disk.start()
    with_it, without = claim(result()), wishing(library="off")
    for each in (with_it, without):
        claims.prepare(each)

    records = claims.records()
    assert records[with_it["metadata"]["uid"]].library == "d" * 64
    assert records[without["metadata"]["uid"]].library == ""


@pytest.mark.parametrize(
    ("wishes", "node", "expected"),
    [
        ({"library": "off"}, Strictness(), "--allow-disable false"),
        ({"core_policy": "disable"}, Strictness(), "--allow-disable false"),
        ({"library": "none"}, LENIENT, "expected off"),
        ({"core_policy": "strict"}, LENIENT, "expected one of default, force, disable"),
        ({"priority": "high"}, LENIENT, "expected a number from 0"),
        ({"priority": "-1"}, LENIENT, "expected a number from 0"),
        ({"priority": "9" * 5000}, LENIENT, "expected a number from 0"),
        ({"priority": "\u0661"}, LENIENT, "expected a number from 0"),
    ],
)
def test_what_cannot_be_granted_is_refused_in_a_sentence(
    tmp_path: Path, wishes: dict[str, str], node: Strictness, expected: str
) -> None:
    disk = Disk(tmp_path)
    disk.host.how = node

    with pytest.raises(PrepareError, match=expected):
        disk.start().prepare(wishing(**wishes))
    assert disk.names() == set()


def test_stricter_wishes_are_granted_everywhere(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    wanted = wishing(core_policy="force", priority="7")
    disk.start().prepare(wanted)

    assert control(disk, wanted).core_policy is CorePolicy.FORCE
    assert control(disk, wanted).priority == 7
