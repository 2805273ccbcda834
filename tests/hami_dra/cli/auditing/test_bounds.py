"""What limits or counts converted resources is judged as preflight and the quota core judge it."""

import pytest

from hami_dra.cli.auditing.bounds import (
    COUNTING,
    Counting,
    bound_of_counting,
    bound_of_limits,
    bound_of_quota,
)
from hami_dra.migration import Json, Policy
from hami_dra.migration.registration import claim_webhook_configuration
from hami_dra.preflight.evidence import Hidden

POLICY = Policy()
HELD = claim_webhook_configuration(POLICY, {})


def item(name: str, **fields: object) -> Json:
    return {"metadata": {"namespace": "team", "name": name}, **fields}


def limits(**sections: dict[str, str]) -> Json:
    return item("bounds", spec={"limits": [{"type": "Container", **sections}]})


@pytest.mark.parametrize(
    ("section", "becomes", "fix"),
    [
        ("min", "which no converted pod satisfies", "# remove the minimum and the ratio"),
        ("max", "which holds back no converted pod", "# and create a ResourceQuota"),
        ("default", "give every container a converted resource", "# remove the default"),
        ("maxLimitRequestRatio", "which no converted pod satisfies", "and the ratio"),
    ],
)
def test_a_limit_range_is_told_by_what_it_says(section: str, becomes: str, fix: str) -> None:
    bound = bound_of_limits(limits(**{section: {"nvidia.com/gpumem": "1000"}}), POLICY)

    assert bound is not None
    assert (bound.namespace, bound.title) == ("team", "LimitRange/bounds")
    assert bound.says == f"{section} nvidia.com/gpumem: 1000"
    assert becomes in bound.becomes
    assert bound.fix.endswith(fix)


def test_a_limit_range_on_other_resources_is_not_listed() -> None:
    assert bound_of_limits(limits(max={"cpu": "4"}), POLICY) is None


def quota(**hard: str) -> Json:
    named = {key.replace("__", "."): amount for key, amount in hard.items()}
    keys = {f"{key}/gpumem": amount for key, amount in named.items()}
    return item("cards", spec={"hard": keys}, status={"used": dict.fromkeys(keys, "7")})


def test_a_quota_says_who_enforces_it_and_whether_everything_fits() -> None:
    found = quota(limits__nvidia__com="40000")
    small, large = {"nvidia.com/gpumem": 40000}, {"nvidia.com/gpumem": 40001}

    held = bound_of_quota(found, POLICY, validating=HELD, wanted=small)
    over = bound_of_quota(found, POLICY, validating=None, wanted=large)
    unknown = bound_of_quota(found, POLICY, validating=Hidden("403 Forbidden"), wanted={})

    assert held is not None
    assert held.says == "limits.nvidia.com/gpumem: 40000 MiB"
    told = "team/cards, enforced by the webhook; what is used: hami-dra quota -n team"
    assert (held.becomes, held.fix) == (told, "")
    assert over is not None
    assert over.says == "limits.nvidia.com/gpumem: 40000 MiB (used: 7)"
    assert "nothing enforces them" in over.becomes
    assert "do not fit: exceeded quota: cards" in over.becomes
    assert over.fix == "hami-dra install"
    assert unknown is not None
    assert "could not be read: 403 Forbidden" in unknown.becomes


def test_a_key_that_no_claim_is_measured_by_is_told() -> None:
    found = item("cards", spec={"hard": {"requests.nvidia.com/priority": "1", "pods": "1"}})

    bound = bound_of_quota(found, POLICY, validating=HELD, wanted={})

    assert bound is not None
    assert bound.becomes.startswith("QuotaNotHeld: resourcequotas/cards: requests.nvidia.com/prio")
    assert "enforced" not in bound.becomes
    assert (
        bound_of_quota(item("q", spec={"hard": {"pods": "1"}}), POLICY, validating=None, wanted={})
        is None
    )


@pytest.mark.parametrize("counting", COUNTING, ids=lambda each: f"{each.group}-{each.kind}")
def test_batch_schedulers_are_told_where_they_name_a_converted_resource(counting: Counting) -> None:
    by_key = item("a", spec={"capability": {"nvidia.com/gpu": 8}})
    by_text = item("a", spec={"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"]}]})
    other = item("a", spec={"coveredResources": ["cpu"]})

    for found in (by_key, by_text):
        bound = bound_of_counting(found, counting, POLICY)
        assert bound is not None
        assert bound.says == "names nvidia.com/gpu"
        assert (bound.becomes, bound.fix) == (counting.becomes, counting.fix)
    assert bound_of_counting(other, counting, POLICY) is None
