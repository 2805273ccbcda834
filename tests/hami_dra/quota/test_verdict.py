"""Which keys of a quota are held, and what somebody is told who does not fit."""

from typing import Any

import pytest

from hami_dra.migration import Cards, Json, Policy, migrate
from hami_dra.migration.names import DRIVER
from hami_dra.quota import Quota, exceeded, read_asked, read_quota
from hami_dra.quota.amounts import total

GPU, MEMORY, CORES = "nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"
POLICY = Policy()


def quota(hard: Json, *, policy: Policy = POLICY, **spec: Any) -> Quota | None:  # noqa: ANN401
    metadata = {"name": "team", "namespace": "n", "uid": "u"}
    return read_quota({"metadata": metadata, "spec": {"hard": hard, **spec}}, policy)


def held(hard: Json, **fields: Any) -> Quota:  # noqa: ANN401
    found = quota(hard, **fields)
    assert found is not None
    return found


@pytest.mark.parametrize("prefix", ["limits", "requests"])
def test_both_prefixes_of_cards_memory_and_cores_are_held(prefix: str) -> None:
    hard = {f"{prefix}.{name}": "3" for name in (GPU, MEMORY, CORES)}

    found = held({**hard, "pods": "10", "limits.memory": "1Gi"})

    assert {(each.key, each.meaning.unit, each.hard) for each in found.limits} == {
        (f"{prefix}.{GPU}", "cards", 3),
        (f"{prefix}.{MEMORY}", "MiB", 3),
        (f"{prefix}.{CORES}", "percent", 3),
    }
    assert found.notices == ()


def test_other_quotas_are_none_of_our_business() -> None:
    assert quota({"pods": "10", "requests.example.com/gpu": "1"}) is None
    assert quota({}) is None


def test_a_vendor_whose_pods_are_not_converted_keeps_the_api_servers_quota() -> None:
    policy = Policy.model_validate({"families": ["enflame"]})

    assert quota({"requests.enflame.com/gcu": "1"}, policy=policy) is None


def test_names_come_from_the_policy() -> None:
    policy = Policy.model_validate({"families": [{"resources": {"memory": "example.com/mem"}}]})

    assert held({"limits.example.com/mem": "5"}, policy=policy).limits[0].hard == 5


def test_a_limit_is_in_the_unit_of_the_resource_as_people_write_it() -> None:
    policy = Policy.model_validate({"families": [{"memoryFactor": 1024}]})

    assert held({f"limits.{MEMORY}": "16"}, policy=policy).limits[0].hard == 16 * 1024
    assert held({f"limits.{MEMORY}": "16k"}).limits[0].hard == 16000
    assert held({f"requests.{GPU}": "1500m"}).limits[0].hard == 1


def test_what_cannot_be_held_is_told() -> None:
    found = held({f"requests.{MEMORY}-percentage": "50", f"requests.{GPU}": "1"})

    assert [each.key for each in found.limits] == [f"requests.{GPU}"]
    [notice] = found.notices
    assert str(notice) == (
        "QuotaNotHeld: resourcequotas/team: requests.nvidia.com/gpumem-percentage is not held:"
        " claims have no such amount"
    )


@pytest.mark.parametrize(
    "scoped",
    [
        {"scopes": ["PriorityClass"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}},
    ],
)
def test_a_scoped_quota_holds_for_every_claim_and_says_so(scoped: Json) -> None:
    found = held({f"requests.{GPU}": "1"}, **scoped)

    assert "PriorityClass" in str(found.notices)
    assert exceeded([found], {GPU: 1}, {GPU: 1})


def test_the_message_is_the_api_servers_with_units() -> None:
    found = held({f"limits.{MEMORY}": "16000", f"limits.{CORES}": "100", f"requests.{GPU}": "9"})

    said = exceeded([found], {GPU: 2, MEMORY: 16000, CORES: 60}, {GPU: 1, MEMORY: 8000, CORES: 50})

    assert said == (
        "exceeded quota: team, requested: limits.nvidia.com/gpumem=8000 MiB,"
        "limits.nvidia.com/gpucores=50 percent, used: limits.nvidia.com/gpumem=16000 MiB,"
        "limits.nvidia.com/gpucores=60 percent, limited: limits.nvidia.com/gpumem=16000 MiB,"
        "limits.nvidia.com/gpucores=100 percent"
    )


def test_exactly_the_limit_fits_and_what_is_not_asked_for_is_not_judged() -> None:
    found = held({f"limits.{MEMORY}": "10", f"limits.{CORES}": "10"})

    assert exceeded([found], {MEMORY: 4, CORES: 99}, {MEMORY: 6, CORES: 0, GPU: 1}) == ""
    assert exceeded([found], {MEMORY: 5}, {MEMORY: 6})


def test_every_quota_of_a_namespace_holds() -> None:
    wide, narrow = held({f"limits.{MEMORY}": "100"}), held({f"requests.{MEMORY}": "10"})

    assert exceeded([wide, narrow], {}, {MEMORY: 50}).count("exceeded quota") == 1
    assert exceeded([wide, narrow], {}, {MEMORY: 500}).count("exceeded quota") == 2


def test_what_cannot_be_counted_does_not_fit_where_memory_is_limited() -> None:
    found = held({f"limits.{MEMORY}": "10"})

    assert "no ResourceSlice shows the size" in exceeded([found], {}, {MEMORY: None})
    assert exceeded([found], {MEMORY: None}, {MEMORY: 1})
    assert exceeded([held({f"limits.{CORES}": "10"})], {}, {MEMORY: None, CORES: 5}) == ""


VECTORS = {
    "V55": ({f"limits.{MEMORY}": "2048"}, {GPU: 2, MEMORY: 2000}, True),
    "V56": ({f"limits.{MEMORY}": "0"}, {MEMORY: 1}, True),
    "V57": ({f"limits.{MEMORY}": "100"}, {GPU: 1, f"{MEMORY}-percentage": 100}, True),
    "V58": ({f"limits.{CORES}": "50"}, {GPU: 1}, True),
    "a fit": ({f"limits.{MEMORY}": "4000", f"limits.{CORES}": "0"}, {GPU: 2, MEMORY: 2000}, False),
}


@pytest.mark.parametrize("vector", VECTORS)
def test_legacy_requests_meet_legacy_quotas(vector: str) -> None:
    """V57 differs from legacy in time only: it admitted the pod and never placed it."""
    hard, limits, refused = VECTORS[vector]
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}

    claims = migrate(pod, POLICY, Cards(frozenset({81920}))).claims
    asked = total(read_asked(c.spec["spec"], POLICY).amounts({DRIVER: 81920}) for c in claims)

    assert bool(exceeded([held(hard)], {}, asked)) is refused
