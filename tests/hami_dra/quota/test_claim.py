"""What a claim takes: as it asks before allocation, as it was given afterwards."""

from typing import Any

import pytest
from hypothesis import given

from hami_dra.migration import Json, Policy, RejectedPod, migrate
from hami_dra.migration.names import DRIVER
from hami_dra.migration.selector import is_model
from hami_dra.quota import holdings, read_asked, read_claim
from hami_dra.quota.amounts import Amounts, total
from tests.pods import CARDS, POLICY, migrated, pods

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
SIZES = {DRIVER: 81920}
WHOLE = {GPU: 1, MEMORY: 81920, CORES: 100}


def exactly(device_class: str = DRIVER, /, **fields: Any) -> Json:  # noqa: ANN401 - any JSON
    capacity = {k: fields.pop(k) for k in ("memory", "cores", "slots") if k in fields}
    asked: Json = {"deviceClassName": device_class, **fields}
    return {**asked, "capacity": {"requests": capacity}} if capacity else asked


def claim(*requests: Json, results: list[Json] | None = None) -> Json:
    named = [{"name": f"r{index}", **each} for index, each in enumerate(requests)]
    found: Json = {
        "metadata": {"uid": "u", "name": "c", "resourceVersion": "7"},
        "spec": {"devices": {"requests": named}},
    }
    if results is not None:
        found["status"] = {"allocation": {"devices": {"results": results}}}
    return found


def one(*alternatives: Json) -> Json:
    if len(alternatives) == 1:
        return {"exactly": alternatives[0]}
    return {"firstAvailable": [{"name": f"s{i}", **each} for i, each in enumerate(alternatives)]}


def taken(item: Json, policy: Policy = POLICY) -> Amounts:
    return read_claim(item, policy).claimed.amounts(SIZES)


ASKED = {
    "a share": (one(exactly(memory="8000Mi", cores="30")), {GPU: 1, MEMORY: 8000, CORES: 30}),
    "several cards": (
        one(exactly(memory="5000Mi", cores="20", count=2)),
        {GPU: 2, MEMORY: 10000, CORES: 40},
    ),
    "a whole card": (one(exactly(cores="100", slots="100")), WHOLE),
    "nothing said is charged in full": (one(exactly()), WHOLE),
    "a part of a MiB is a MiB": (
        one(exactly(memory="1", cores="0")),
        {GPU: 1, MEMORY: 1, CORES: 0},
    ),
    "a part of a percent is a percent": (
        one(exactly(memory="1Mi", cores="100m")),
        {GPU: 1, MEMORY: 1, CORES: 1},
    ),
    "bytes": (one(exactly(memory="1Gi", cores="0")), {GPU: 1, MEMORY: 1024, CORES: 0}),
    "all cards that match are as many as a claim can hold": (
        one(exactly(memory="1Mi", cores="1", allocationMode="All")),
        {GPU: 32, MEMORY: 32, CORES: 32},
    ),
    "the largest alternative, each amount by itself": (
        one(exactly(memory="100Mi", cores="30"), exactly(memory="200Mi", cores="10", count=2)),
        {GPU: 2, MEMORY: 400, CORES: 30},
    ),
    "an alternative of another driver": (
        one(exactly(memory="100Mi", cores="30"), exactly("other")),
        {GPU: 1, MEMORY: 100, CORES: 30},
    ),
    "another driver": (one(exactly("other", memory="1Mi")), {}),
    "watching takes nothing": (one(exactly(adminAccess=True)), {}),
    "a name that the driver does not publish says nothing": (
        one({**exactly(), "capacity": {"requests": {f"{DRIVER}/memory": "1Mi", "cores": "0"}}}),
        {GPU: 1, MEMORY: 81920, CORES: 0},
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_before_allocation_a_claim_takes_what_it_asks_for(case: str) -> None:
    request, expected = ASKED[case]

    assert taken(claim(request)) == expected


def test_requests_add_up() -> None:
    half = one(exactly(memory="40Mi", cores="50"))

    assert taken(claim(half, half)) == {GPU: 2, MEMORY: 80, CORES: 100}


def result(request: str, driver: str = DRIVER, **consumed: str) -> Json:
    found: Json = {"request": request, "driver": driver, "pool": "p", "device": "d"}
    return {**found, "consumedCapacity": consumed} if consumed else found


GIVEN = {
    "a smaller card than the largest": (
        one(exactly()),
        [result("r0", memory="23034Mi", cores="100", slots="100")],
        {GPU: 1, MEMORY: 23034, CORES: 100},
    ),
    "the alternative that was taken": (
        one(exactly(memory="100Mi"), exactly(memory="200Mi")),
        [result("r0/s0", memory="100Mi", cores="0")],
        {GPU: 1, MEMORY: 100, CORES: 0},
    ),
    "the other spelling": (
        one(exactly()),
        [result("r0", **{f"{DRIVER}/memory": "5Mi", f"{DRIVER}/cores": "1"})],
        {GPU: 1, MEMORY: 5, CORES: 1},
    ),
    "a card that cannot be shared": (one(exactly(memory="5Mi")), [result("r0")], WHOLE),
    "through a class that the policy does not know": (
        one(exactly("somebodys", memory="5Mi")),
        [result("r0", memory="5Mi", cores="1")],
        {GPU: 1, MEMORY: 5, CORES: 1},
    ),
    "another driver": (one(exactly("other")), [result("r0", "other", memory="5Mi")], {}),
    "watching takes nothing": (
        one(exactly(adminAccess=True)),
        [{**result("r0"), "adminAccess": True}],
        {},
    ),
}


@pytest.mark.parametrize("case", GIVEN)
def test_after_allocation_a_claim_takes_what_it_was_given(case: str) -> None:
    request, results, expected = GIVEN[case]

    assert taken(claim(request, results=results)) == expected


def test_a_whole_card_cannot_be_counted_while_no_size_is_known() -> None:
    found = read_claim(claim(one(exactly()), one(exactly(memory="5Mi"))), POLICY).claimed

    assert found.amounts({}) == {GPU: 2, MEMORY: None, CORES: 200}
    assert holdings([read_claim(claim(one(exactly())), POLICY)], SIZES) == WHOLE


def test_chips_that_share_a_class_are_told_apart_by_the_condition_that_holds_them_apart() -> None:
    policy = Policy.model_validate({"families": ["Ascend910A", "Ascend310P"]})
    small = policy.families[1]
    cel = {"selectors": [{"cel": {"expression": is_model(small)}}]}
    asked = exactly(small.device_class, memory="3072Mi", cores="0")

    assert taken(claim(one({**asked, **cel})), policy) == {
        "huawei.com/Ascend310P": 1,
        "huawei.com/Ascend310P-memory": 3072,
        "huawei.com/Ascend310P-core": 0,
    }
    either = taken(claim(one(asked)), policy)
    assert either["huawei.com/Ascend310P"] == either["huawei.com/Ascend910A"] == 1


def test_the_size_of_a_chip_that_the_policy_knows_needs_no_slice() -> None:
    policy = Policy.model_validate({"families": ["Ascend910A"]})

    amounts = read_claim(claim(one(exactly(policy.families[0].device_class))), policy).claimed

    assert amounts.amounts({})["huawei.com/Ascend910A-memory"] == 32768


def test_compute_in_a_drivers_own_units_counts_in_percent() -> None:
    policy = Policy.model_validate({"families": [{"preset": "hygon-dcu", "coreUnits": 60}]})
    asked = exactly("dra.hygon.com", memory="1Mi", cores="18")

    assert taken(claim(one(asked)), policy)["hygon.com/dcucores"] == 30
    unknown = Policy.model_validate({"families": ["hygon-dcu"]})
    assert taken(claim(one(asked)), unknown)["hygon.com/dcucores"] == 100


def test_who_holds_a_claim_is_who_it_is_reserved_for_or_else_who_owns_it() -> None:
    item = claim(one(exactly()))
    item["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "owner"}]
    assert read_claim(item, POLICY).holders == ("owner",)

    item["status"] = {"reservedFor": [{"resource": "pods", "name": name} for name in ("a", "b")]}
    assert read_claim(item, POLICY).holders == ("a", "b")


@pytest.mark.parametrize(
    "spec",
    [
        {"devices": []},
        {"devices": {"requests": {}}},
        {"devices": {"requests": [1]}},
        {"devices": {"requests": [one(exactly(count="2"))]}},
        {"devices": {"requests": [one(exactly(count=-1))]}},
        {"devices": {"requests": [one(exactly(memory="lots"))]}},
        {"devices": {"requests": [{"exactly": exactly(capacity=[])}]}},
    ],
)
def test_what_is_no_claim_is_rejected_with_its_path(spec: Json) -> None:
    with pytest.raises(RejectedPod, match="spec"):
        read_asked(spec, POLICY)


def test_an_init_container_that_shares_a_claim_counts_once() -> None:
    limits = {"limits": {GPU: 1, MEMORY: 8000, CORES: 30}}
    spec = {
        "initContainers": [{"name": "init", "resources": limits}],
        "containers": [{"name": "main", "resources": limits}],
    }

    found = migrate({"spec": spec}, POLICY, CARDS)

    assert asked_by(found.claims) == {GPU: 1, MEMORY: 8000, CORES: 30}


def test_equal_containers_have_one_template_and_two_claims() -> None:
    limits = {"limits": {GPU: 1, MEMORY: 8000, CORES: 30}}
    spec = {"containers": [{"name": name, "resources": limits} for name in ("a", "b")]}

    found = migrate({"spec": spec}, POLICY, CARDS)

    assert len(found.templates) == 1
    assert asked_by(found.claims) == {GPU: 2, MEMORY: 16000, CORES: 60}


def asked_by(templates: Any) -> dict[str, int | None]:  # noqa: ANN401 - a tuple of templates
    sizes = {DRIVER: max(CARDS.memory_mib)}
    return total(read_asked(each.spec["spec"], POLICY).amounts(sizes) for each in templates)


@given(pods())
def test_every_new_entry_of_a_pod_has_a_template_that_counts(drawn: Json) -> None:
    """What a pod will take is read from its templates, so nothing of it can be left out."""
    done = migrated(drawn)
    if done is None:
        return
    migration, result = done
    entries = result["spec"].get("resourceClaims", [])
    new = entries[len(drawn["spec"].get("resourceClaims") or []) :]

    assert [each["resourceClaimTemplateName"] for each in new] == [t.name for t in migration.claims]
    asked = asked_by(migration.claims)
    assert (asked.get(GPU) or 0) >= len(new)
    assert None not in asked.values()
