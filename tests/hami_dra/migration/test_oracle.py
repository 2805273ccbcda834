"""What we make of a pod, against what HAMi v2.10.0 really answered (tests/oracle.py, ruling 1).

A difference is allowed only where a ruling asks for it, and is counted under that ruling's name.
"""

from collections import Counter

import pytest
from pydantic import ValidationError

from hami_dra.migration import Cards, Family, Json, Policy, RejectedPod, migrate
from hami_dra.migration.legacy import carries, read_request
from tests.oracle import cases, pod_of, policy_of

CARD_MIB = 81920

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
    if scheduled or case["config"]["name"] in {"no-scheduler-name", "keep-default-scheduler"}:
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
