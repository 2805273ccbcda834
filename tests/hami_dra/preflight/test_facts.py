"""Each fact passes on a good cluster, and on one broken in its way says so and what to do."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hami_dra.migration import Family, Policy
from hami_dra.migration.names import DRIVER
from hami_dra.migration.presets import PRESETS
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from hami_dra.preflight.checks import CHECKS
from hami_dra.preflight.collect import node_of, pool_of
from hami_dra.preflight.evidence import Evidence, Hidden
from hami_dra.preflight.fact import Check, Fact, Status, judge_each, names
from tests.hami_dra.preflight.broken import ADMISSION, BROKEN, MANY_SIZES, WARN
from tests.hami_dra.preflight.evidence import (
    NOW,
    POLICY,
    another,
    device_class,
    good,
    named,
    pools,
    registration,
)

PAGE = Path(__file__).parents[3] / ".github" / "PREFLIGHT.md"


def facts(evidence: Evidence, policy: Policy = POLICY) -> dict[str, Fact]:
    return {fact.id: fact for fact in judge_each(CHECKS, evidence, policy)}


def test_a_good_cluster_passes_everything() -> None:
    found = facts(good())

    assert {fact.id: fact.found for fact in found.values() if fact.status is not Status.PASS} == {}
    assert all(not fact.fix and not fact.expected for fact in found.values())


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_cluster_is_told_what_to_do(case: str) -> None:
    changed, id_, status, found, fix = BROKEN[case]

    fact = facts(good(**changed))[id_]

    assert fact.status is status
    assert found in fact.found
    assert fix in fact.fix
    assert fact.expected


def test_every_fact_is_broken_by_a_case() -> None:
    assert {id_ for _, id_, *_ in BROKEN.values()} == {check.id for check in CHECKS}


def test_more_sizes_than_a_claim_can_list_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hami_dra.preflight.devices.MOST_SIZES", 1)

    fact = facts(good(pools=MANY_SIZES))["card-sizes"]

    assert fact.status is WARN
    assert fact.found.startswith("3 sizes: 23034 MiB, ")
    assert "MiB instead of percent" in fact.fix


def test_sizes_are_counted_for_each_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools of two drivers are named alike, by their node, and have generations of their own."""
    monkeypatch.setattr("hami_dra.preflight.devices.MOST_SIZES", 1)
    other = Family(name="other", device_class="other.example", driver="other.example")
    names_ = {key: f"other.example/{key}" for key in type(other.resources).model_fields}
    resources = other.resources.model_copy(update=names_)
    policy = Policy(families=(*POLICY.families, other.model_copy(update={"resources": resources})))
    [ours], [large] = pools(), pools("a100-80g")
    theirs = replace(
        large,
        driver="other.example",
        sizes=replace(large.sizes, generation=large.sizes.generation + 5),
    )

    both = facts(good(pools=[ours, theirs]), policy)["card-sizes"]
    one = facts(good(pools=[ours]), policy)["card-sizes"]

    assert (both.status, both.found) == (Status.PASS, "1 size: 23034 MiB; 1 size: 81920 MiB")
    assert (one.status, one.found) == (WARN, "no size of a shareable card")


def test_without_percentages_no_size_is_needed() -> None:
    family = Family()
    resources = family.resources.model_copy(update={"percentage": ""})
    policy = Policy(families=(family.model_copy(update={"resources": resources}),))

    assert facts(good(pools=[]), policy)["card-sizes"].status is Status.PASS


def test_partitions_beside_shared_cards_hide_no_capacity() -> None:
    item = resource_slice(cards("l4-24g", 2, "n1"), node="n1", node_uid="u", driver=DRIVER)
    shared, partition = item["spec"]["devices"]
    del partition["allowMultipleAllocations"]
    partition["capacity"] = {"memory": shared["capacity"]["memory"]}

    fact = facts(good(pools=[pool_of(item)]))["driver-profile"]

    assert (fact.status, fact.found) == (Status.PASS, "profile hami-dra")


def test_the_class_of_partitions_must_be_there_too() -> None:
    family = Family(mig_device_class="mig.example")
    policy = Policy(families=(family,))
    classes = [device_class(), device_class("mig.example", "gpu.nvidia.com")]

    absent = facts(good(), policy)["device-class"]
    there = facts(good(classes=classes), policy)["device-class"]

    assert (absent.status, "no DeviceClass mig.example" in absent.found) == (Status.FAIL, True)
    assert "migDeviceClass" in absent.fix
    assert there.status is Status.PASS


def test_upstreams_driver_passes_with_a_policy_that_says_so() -> None:
    family = Family()
    without = family.model_copy(
        update={"capacities": family.capacities.model_copy(update={"slots": ""})}
    )
    policy = Policy(families=(without,))
    shared = {"memory": {"value": "1Gi"}, "cores": {"value": "100"}}

    upstream = facts(good(pools=pools(capacity=shared)), policy)["driver-profile"]
    ours = facts(good(), policy)["driver-profile"]

    assert (upstream.status, upstream.found) == (Status.PASS, "profile hami")
    assert (ours.status, "does not use it" in ours.found) == (WARN, True)


def test_slices_of_an_older_generation_do_not_count() -> None:
    [new], [old] = pools(), pools(allowMultipleAllocations=False)
    older = replace(old, sizes=replace(old.sizes, generation=0))

    assert facts(good(pools=[older, new]))["driver-profile"].status is Status.PASS


def test_quotas_with_the_webhook_and_webhooks_with_the_guard_pass() -> None:
    quotas = [named("q", hard={"requests.nvidia.com/gpu": "8"})]
    found = facts(good(quotas=quotas, mutating=[registration(), another("zz")]))

    assert found["resource-quotas"].found == "team/q, enforced by the webhook"
    assert found["webhook-order"].found == "zz come after ours, which is called again"


def test_what_is_not_converted_is_left_to_its_device_plugin() -> None:
    """The API server counts and bounds it itself, and its device plugin has to stay."""
    policy = Policy(families=(*POLICY.families, PRESETS["enflame"]))
    name = "enflame.com/gcu"
    allocatable = {"status": {"allocatable": {name: "8"}}, "metadata": {"name": "n1"}}
    evidence = good(
        nodes=[node_of(allocatable)],
        classes=[device_class(), device_class("gcu", "gcu", name)],
        limit_ranges=[named("lr", limits=[{"min": {name: "1"}, "default": {name: "1"}}])],
        quotas=[named("q", hard={f"requests.{name}": "8"})],
        validating=None,
    )

    for id_ in ("device-plugin", "extended-resource-name", "limit-ranges", "resource-quotas"):
        assert facts(evidence, policy)[id_].status is Status.PASS


def test_a_scheduler_that_was_scaled_to_zero_is_gone() -> None:
    """That is the command which a preflight gives for one that runs."""
    scheduler = {**named("hami-scheduler"), "spec": {"replicas": 0}}

    fact = facts(good(schedulers=[scheduler]))["hami-scheduler"]

    assert (fact.status, fact.found) == (Status.PASS, "HAMi's scheduler is scaled to zero")


def test_a_quota_without_a_prefix_is_counted_by_nobody() -> None:
    evidence = good(quotas=[named("q", hard={"nvidia.com/gpu": "8"})], validating=None)

    assert facts(evidence)["resource-quotas"].status is Status.PASS


def test_a_service_is_judged_by_what_the_api_server_says_of_it() -> None:
    fact = facts(good(served=Hidden("403")))["webhook-certificate"]

    assert fact.status is Status.PASS
    assert "webhook-answers tells" in fact.found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_what_cannot_be_read_is_never_a_pass(check: Check) -> None:
    [fact] = judge_each([check], Evidence(now=NOW), POLICY)

    assert fact.status is Status.UNKNOWN
    assert "not read" in fact.found


def test_a_hidden_part_leaves_the_other_facts_alone() -> None:
    found = facts(good(nodes=Hidden("403 Forbidden: nodes")))

    unknown = {id_: f.found for id_, f in found.items() if f.status is Status.UNKNOWN}
    assert unknown == {
        "device-plugin": "403 Forbidden: nodes",
        "hami-node-annotations": "403 Forbidden: nodes",
    }


def test_what_the_api_server_adds_by_default_makes_no_difference() -> None:
    stored = {
        **ADMISSION,
        "spec": {
            **ADMISSION["spec"],
            "validations": [{**ADMISSION["spec"]["validations"][0], "reason": "Invalid"}],
        },
    }

    assert facts(good(guard=stored))["guard"].status is Status.PASS


def test_names_are_not_listed_by_the_thousand() -> None:
    assert names(f"n{number}" for number in range(9)) == "n0, n1, n2, n3, n4 and 4 more"
    assert names(["b", "a", "b"]) == "a, b"


def test_every_fact_is_on_its_page_and_nothing_else() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)

    assert rows == [check.id for check in CHECKS]
