"""What holds for every pod, not only for the golden ones."""

import json
from collections.abc import Iterable
from copy import deepcopy

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration import Json, NamespaceLimits, RejectedPod, migrate
from hami_dra.migration.record import ANNOTATION
from tests.pods import CARDS, MANAGED, POLICY, anything, migrated, pods, rows


def every_container(pod: Json) -> list[Json]:
    return [*pod["spec"]["initContainers"], *pod["spec"]["containers"]]


@given(pods())
def test_a_second_migration_changes_nothing(pod: Json) -> None:
    result = migrated(pod)

    if result is not None:
        again = migrate(result[1], POLICY, CARDS)
        assert (again.patch, again.templates) == ([], ())


@given(pods())
def test_the_pod_that_goes_in_is_never_changed(pod: Json) -> None:
    before = deepcopy(pod)

    migrated(pod)

    assert pod == before


@given(pods())
def test_no_managed_key_is_left(pod: Json) -> None:
    result = migrated(pod)

    if result is not None and result[0].patch:
        for container in every_container(result[1]):
            left = [container["resources"].get(section, {}) for section in ("limits", "requests")]
            assert not any(name in section for name in MANAGED for section in left)


def without_ours(pod: Json, before: Json) -> Json:
    """Undo by hand what a migration may touch, so that the rest can be compared."""
    stripped: Json = deepcopy(pod)
    stripped["spec"].pop("resourceClaims", None)
    stripped["metadata"]["annotations"].pop(ANNOTATION, None)
    for container, original in zip(every_container(stripped), every_container(before), strict=True):
        container.pop("env", None)
        container["resources"].pop("claims", None)
        container["resources"] |= {
            section: deepcopy(original["resources"][section]) for section in ("limits", "requests")
        }
    return stripped


@given(pods())
def test_unknown_fields_survive_at_any_depth(pod: Json) -> None:
    result = migrated(pod)

    if result is not None:
        assert json.dumps(without_ours(result[1], pod), sort_keys=True) == json.dumps(
            pod, sort_keys=True
        )


@given(pods())
def test_every_entry_points_to_a_template_that_comes_along(pod: Json) -> None:
    result = migrated(pod)

    if result is not None:
        entries = result[1]["spec"].get("resourceClaims", [])
        used = {entry["resourceClaimTemplateName"] for entry in entries}
        assert used == {template.name for template in result[0].templates}
        assert len({entry["name"] for entry in entries}) == len(entries)


def is_sidecar(container: Json) -> bool:
    return container.get("restartPolicy") == "Always"


def claims_of(containers: Iterable[Json]) -> list[str]:
    return [claim["name"] for each in containers for claim in each["resources"].get("claims", [])]


@given(rows())
def test_containers_that_run_at_one_time_share_no_claim(pod: Json) -> None:
    """They would share one limit too, where each of them asked for its own."""
    result = migrated(pod)

    if result is not None:
        early, main = (result[1]["spec"][kind] for kind in ("initContainers", "containers"))
        lasting = [*filter(is_sidecar, early), *main]
        # An init container runs beside the sidecars that stand before it.
        begun = [[*filter(is_sidecar, early[:at]), each] for at, each in enumerate(early)]
        for together in (lasting, *begun):
            used = claims_of(together)
            assert len(used) == len(set(used))


@given(pods(), pods())
def test_templates_are_equal_exactly_when_their_names_are(one: Json, other: Json) -> None:
    results = [result for result in (migrated(one), migrated(other)) if result]

    every = [template for result in results for template in result[0].templates]
    for left in every:
        for right in every:
            assert (left.name == right.name) == (left.spec == right.spec)


@given(anything)
def test_any_json_gives_a_migration_or_a_rejection(value: object) -> None:
    for pod in ({"spec": value}, {"metadata": value, "spec": {"containers": [value]}}):
        migrated(pod)


@given(st.text(), anything)
def test_any_shape_of_a_gpu_container_gives_a_migration_or_a_rejection(
    name: str, value: object
) -> None:
    limits = {"nvidia.com/gpu": value, "nvidia.com/gpumem": 1}
    for container in (
        {"name": name, "resources": {"limits": limits}},
        {"name": value, "resources": {"limits": limits}, "env": value},
        {"name": name, "resources": {"limits": {"nvidia.com/gpu": 1}, "claims": value}},
    ):
        migrated({"spec": {"containers": [container], "resourceClaims": value}})


@given(st.text())
def test_an_annotation_can_only_be_a_literal(text: str) -> None:
    """Whatever a user writes, taking the quoted strings out of the selector leaves the same CEL."""
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1}
    spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    annotations = {"nvidia.com/use-gpuuuid": text.replace(",", "") + "x"}
    result = migrated({"metadata": {"annotations": annotations}, "spec": spec})

    if result is not None:
        exactly = result[0].templates[0].spec["spec"]["devices"]["requests"][0]["exactly"]
        expression = exactly["selectors"][0]["cel"]["expression"]
        assert (
            skeleton(expression) == "? in device.attributes[?] && device.attributes[?].uuid in [?]"
        )


def skeleton(expression: str) -> str:
    """Replace each CEL string literal by a question mark, as a CEL lexer would find them."""
    out, inside, escaped = "", False, False
    for character in expression:
        if not inside:
            inside = character == '"'
            out += "?" if inside else character
        elif escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            inside = False
    assert not inside
    return out


@pytest.mark.parametrize(
    "forged",
    [
        "[]",
        "{",
        "null",
        '{"c": 1}',
        '{"c": {"claims": ["nope"]}}',
        "[" * 9999,
        '{"containers": 1}',
        '{"containers": {"c": {"claims": ["x"]}}}',
        '{"env": 1, "fields": []}',
    ],
)
def test_a_forged_record_does_not_stop_a_conversion(forged: str) -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}

    migration = migrate(
        {"metadata": {"annotations": {ANNOTATION: forged}}, "spec": spec}, POLICY, CARDS
    )

    assert len(migration.templates) == 1


def test_a_container_injected_later_is_converted_alone() -> None:
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}
    first = {"spec": {"containers": [{"name": "a", "resources": {"limits": limits}}]}}
    once = jsonpatch.apply_patch(first, migrate(first, POLICY, CARDS).patch)
    once["spec"]["containers"].append({"name": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}})

    twice = jsonpatch.apply_patch(once, migrate(once, POLICY, CARDS).patch)

    assert [entry["name"] for entry in twice["spec"]["resourceClaims"]] == ["gpu-a", "gpu-b"]
    assert set(json.loads(twice["metadata"]["annotations"][ANNOTATION])["containers"]) == {"a", "b"}


def test_what_a_limit_range_puts_back_is_stripped_again() -> None:
    first = {
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
    }
    once = jsonpatch.apply_patch(first, migrate(first, POLICY, CARDS).patch)
    once["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}

    again = migrate(once, POLICY, CARDS)

    assert (
        "limits"
        not in jsonpatch.apply_patch(once, again.patch)["spec"]["containers"][0]["resources"]
    )
    assert [notice.code for notice in again.notices] == ["StrippedAgain"]
    assert again.templates == ()


def test_what_a_limit_range_holds_is_written_as_zero() -> None:
    pod = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    limits = NamespaceLimits(maximum=frozenset({"nvidia.com/gpu"}))

    once = jsonpatch.apply_patch(pod, migrate(pod, POLICY, CARDS, limits=limits).patch)

    assert once["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "0"}
    assert migrate(once, POLICY, CARDS, limits=limits).patch == []


def test_what_a_limit_range_demands_cannot_be_stripped() -> None:
    pod = {"spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}
    limits = NamespaceLimits(minimum=frozenset({"nvidia.com/gpu"}))

    with pytest.raises(RejectedPod, match="from the LimitRange's min"):
        migrate(pod, POLICY, CARDS, limits=limits)
