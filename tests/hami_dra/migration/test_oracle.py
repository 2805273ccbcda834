"""What we make of a pod, against what HAMi v2.10.0 really answered (tests/oracle.py, ruling 1).

A difference is allowed only where a ruling asks for it, and is counted under that ruling's name.
"""

from collections import Counter

import jsonpatch
import pytest
from pydantic import ValidationError

from hami_dra.migration import Cards, Family, Json, Policy, RejectedPod, migrate
from hami_dra.migration.legacy import carries, read_request
from tests.oracle import cases, pod_of, policy_of

CARD_MIB = 81920

UNSCHEDULED = {"no-scheduler-name", "keep-default-scheduler"}
"""Configurations in which legacy leaves pods to other schedulers."""

DIFFERENCES = {
    "negative setting refused (policy schema)": 157,
    "no card asked: stripped, not left waiting (ruling 8)": 238,
    "amount meant as bytes refused (ruling 6)": 149,
    "beyond 32 bits refused, not wrapped (ruling 9)": 129,
    "more cards than a claim can hold refused (G44)": 129,
    "foreign scheduler converted all the same (ruling 17)": 99,
    "opted out (ruling 21)": 1,
}


def legacy_outcome(case: Json) -> str:
    outcomes = {"gpu": "converted", "managed-only": "converted", "not-gpu": "left alone"}
    return outcomes.get(case["verdict"], "refused")


def our_outcome(pod: Json, policy: Policy) -> tuple[str, str]:
    try:
        migration = migrate(pod, policy, Cards(frozenset({CARD_MIB})))
    except RejectedPod as rejected:
        return "refused", str(rejected)
    return ("converted" if migration.patch else "left alone"), ""


def legacy_tuples(case: Json) -> list[tuple[int, int, int]]:
    """Cards, MiB and cores per container; placement clamps the cores."""
    tuples = [container["tuple"] for container in case["containers"]]
    return [
        (t["nums"], t["mem"] or CARD_MIB * t["pct"] // 100, min(t["cores"], 100))
        if t["nums"]
        else (0, 0, 0)
        for t in tuples
    ]


def our_tuples(pod: Json, case: Json, family: Family) -> list[tuple[int, int, int]]:
    every = {c["name"]: c for c in pod["spec"]["initContainers"] + pod["spec"]["containers"]}
    return [our_tuple(every[container["name"]], family) for container in case["containers"]]


def our_tuple(container: Json, family: Family) -> tuple[int, int, int]:
    if not carries(container, family.managed_names):
        return (0, 0, 0)
    request = read_request(container, "c", family, {})
    if request is None or not request.count:
        return (0, 0, 0)
    percent = request.percentage or 100
    return (request.count, request.memory_mib or CARD_MIB * percent // 100, request.cores)


def named_difference(case: Json, ours: str, reason: str) -> str | None:
    """Name the ruling that asks for a difference, judged by what is in the case."""
    scheduled = case["webhook"].get("message") == "pod already has different scheduler assigned"
    if scheduled or case["config"]["name"] in UNSCHEDULED:
        return "foreign scheduler converted all the same (ruling 17)"
    if case["pod"].get("labels"):
        return "opted out (ruling 21)"
    if ours == "converted":
        return "no card asked: stripped, not left waiting (ruling 8)"
    for text, name in (
        ("not bytes", "amount meant as bytes refused (ruling 6)"),
        ("expected a whole number from 0 to 100", "beyond 32 bits refused, not wrapped (ruling 9)"),
        ("2147483647", "beyond 32 bits refused, not wrapped (ruling 9)"),
        ("limit for one claim", "more cards than a claim can hold refused (G44)"),
        ("nodeName", "no card asked: stripped, not left waiting (ruling 8)"),
    ):
        if text in reason:
            return name
    return None


def compare(case: Json) -> str | None:
    """Return the name of a difference, None for agreement; fail for one without a ruling."""
    try:
        policy = policy_of(case["config"])
    except ValidationError:
        return "negative setting refused (policy schema)"
    pod = pod_of(case["pod"])
    ours, reason = our_outcome(pod, policy)
    legacy = legacy_outcome(case)
    if ours == legacy and (
        ours != "converted" or our_tuples(pod, case, policy.families[0]) == legacy_tuples(case)
    ):
        return None
    name = named_difference(case, ours, reason)
    if name is None:
        pytest.fail(f"{case['id']}: legacy {legacy}, ours {ours} {reason}: {case['pod']}")
    return name


def test_every_request_means_what_it_meant_in_legacy() -> None:
    """Every recorded pod has the legacy outcome, or a difference that a ruling names."""
    found = Counter(compare(case) for case in cases("requests"))

    agreed = found.pop(None)
    assert found == DIFFERENCES
    assert agreed + found.total() == 4638


def changed(case: Json) -> tuple[Json, Json] | None:
    """Return a pod before and after its migration; None where it has none."""
    try:
        policy = policy_of(case["config"])
        pod = pod_of(case["pod"])
        migration = migrate(pod, policy, Cards(frozenset({CARD_MIB})))
    except (ValidationError, RejectedPod):
        return None
    if not migration.patch:
        return None
    return pod, jsonpatch.apply_patch(pod, migration.patch)


def variables_added(before: Json, after: Json) -> dict[str, list[str]]:
    """Return what each container's environment got at its end."""
    added = {}
    for kind in ("initContainers", "containers"):
        for old, new in zip(before["spec"][kind], after["spec"][kind], strict=True):
            appended = new.get("env", [])[len(old.get("env", [])) :]
            added[old["name"]] = [f"{each['name']}={each['value']}" for each in appended]
    return added


def test_every_pod_gets_the_variables_and_runtime_class_that_it_got_in_legacy() -> None:
    """Pods of foreign schedulers got nothing from legacy; we convert them (ruling 17)."""
    agreed = foreign = 0
    for case in cases("requests"):
        result = changed(case)
        if result is None or legacy_outcome(case) == "refused":
            continue
        recorded = {c["name"]: c.get("env_added") or [] for c in case["containers"]}
        if case["webhook"].get("message") or case["config"]["name"] in UNSCHEDULED:
            foreign += variables_added(*result) != recorded
            continue
        assert variables_added(*result) == recorded, case["id"]
        assert result[1]["spec"].get("runtimeClassName") == case.get("runtime_class"), case["id"]
        agreed += 1
    assert (agreed, foreign) == (2041, 15)
