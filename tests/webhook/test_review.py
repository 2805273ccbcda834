"""The wire is read strictly where it matters and warnings are what the API server passes on."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration import Code, Family, Json, Notice
from hami_dra.migration.hint import lost_hints
from hami_dra.migration.policy import HintNames
from tests.webhook.reviews import gpu_pod, review_of
from webhook.response import Admitted, Refused, Response
from webhook.review import (
    LONGEST_WARNING,
    MOST_WARNINGS,
    RequestError,
    checked,
    encode,
    parse,
    usual,
    warnings_of,
)


def test_parse_reads_what_a_review_asks() -> None:
    asked = parse(json.dumps(review_of({"metadata": {"generateName": "x-"}}, dryRun=True)).encode())

    assert (asked.uid, asked.namespace, asked.operation) == ("u-1", "team", "CREATE")
    assert asked.dry_run
    assert asked.creates_pod
    assert asked.name == "x-"
    assert asked.object == {"metadata": {"generateName": "x-"}}


def answered(response: Response) -> Json:
    """Return the answer that goes back for a review."""
    review = json.loads(encode("u", response))
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    found: Json = review["response"]
    return found


def test_answers_that_share_a_patch_are_told_apart() -> None:
    """Many more than are remembered, some of them twice."""
    patches: list[list[Json]] = [[{"op": "remove", "path": f"/{n}"}] for n in range(600)]
    for patch in (*patches, *patches[-5:]):
        for warnings in ((), ("one",), ()):
            answer = answered(Admitted(patch, warnings))

            assert json.loads(base64.b64decode(answer["patch"])) == patch
            assert tuple(answer.get("warnings", ())) == warnings


def test_an_answer_without_a_patch_has_no_patch_type() -> None:
    assert answered(Admitted()) == {"uid": "u", "allowed": True}


def test_a_refusal_carries_code_and_message() -> None:
    assert answered(Refused("no")) == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 422, "message": "no"},
    }


@given(
    st.lists(
        st.builds(Notice, st.sampled_from(list(Code)), st.text(max_size=150), st.text(max_size=150))
    )
)
def test_warnings_are_few_short_unique_and_printable(notices: list[Notice]) -> None:
    warnings = warnings_of(tuple(notices))

    assert len(set(warnings)) == len(warnings) <= MOST_WARNINGS
    assert all(0 < len(text) <= LONGEST_WARNING and text.isprintable() for text in warnings)
    assert bool(warnings) == bool(notices)


def test_a_long_path_gives_way_to_the_message() -> None:
    notice = Notice(Code.CORES_CLAMPED, "spec." + "x" * 100, "found 120, used 100")

    assert warnings_of((notice, notice)) == ("CoresClamped: found 120, used 100",)


def test_a_hint_that_is_lost_is_named_in_each_warning() -> None:
    """Its message alone, `no claim can say it`, speaks of nothing."""
    hints, family = HintNames(), Family()
    annotations = {
        hints.gpu_policy: "spread",
        hints.node_policy: "spread",
        hints.weights: "{}",
        family.annotations.numa_bind: "true",
    }

    warnings = warnings_of(tuple(lost_hints(annotations, hints, family)))

    assert len(warnings) == len(annotations)
    for name, warning in zip(annotations, warnings, strict=True):
        assert name in warning
        assert len(warning) <= LONGEST_WARNING


def test_what_is_left_out_is_counted() -> None:
    notices = tuple(Notice(Code.CORES_CLAMPED, f"p{number}", "m") for number in range(40))

    assert warnings_of(notices)[-1].startswith("and 11 more")


numbers = st.integers() | st.sampled_from([2**63, 2**64, -(2**63) - 1, 10**30, 0.1, 1e300, -0.0])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(pod=st.dictionaries(st.text(), values), is_ascii=st.booleans())
def test_a_pod_is_read_exactly(pod: Json, *, is_ascii: bool) -> None:
    body = json.dumps(review_of(pod), ensure_ascii=is_ascii).encode()

    assert repr(parse(body).object) == repr(json.loads(body)["request"]["object"])


@given(patch=st.lists(st.dictionaries(st.text(), values)))
def test_a_patch_is_written_exactly(patch: list[Json]) -> None:
    answer = answered(Admitted(patch))

    assert repr(json.loads(base64.b64decode(answer.get("patch", "W10=")))) == repr(patch)


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", '"\\ud800"', "[" * 300 + "]" * 300, "01", "'a'"]
)
def test_what_is_not_json_or_too_deep_is_refused(value: str) -> None:
    body = json.dumps(review_of({"metadata": "here"})).replace('"here"', value).encode()

    with pytest.raises(RequestError, match="found no JSON"):
        parse(body)


def test_what_is_given_twice_counts_as_it_was_given_last() -> None:
    body = b'{"metadata": {"name": "a", "name": "b"}}'
    whole = json.dumps(review_of({"metadata": "here"})).encode()

    assert parse(whole.replace(b'{"metadata": "here"}', body)).object == {"metadata": {"name": "b"}}


odd = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just({"version": "v1"})


@given(
    request=st.dictionaries(
        st.sampled_from(
            ["uid", "namespace", "operation", "resource", "subResource", "dryRun", "object"]
        ),
        odd,
    ),
    left_out=st.sets(st.sampled_from(["uid", "namespace", "object", "dryRun", "resource"])),
    kind=st.sampled_from(["AdmissionReview", "Review", None]),
)
def test_the_usual_review_is_read_as_any_other(
    request: dict[str, Any], left_out: set[str], kind: str | None
) -> None:
    review = review_of({"spec": {}}, **request)
    review["kind"] = kind
    review["request"] = {k: v for k, v in review["request"].items() if k not in left_out}

    found = usual(review)

    assert found is None or found == checked(review)


def test_what_the_api_server_sends_is_usual() -> None:
    review = review_of(gpu_pod(gpu="1"))

    assert usual(review) == checked(review)
    assert usual(review) is not None
