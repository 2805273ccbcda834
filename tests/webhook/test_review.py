"""The wire is read strictly where it matters and warnings are what the API server passes on."""

import json

from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration import Code, Notice
from tests.webhook.reviews import review_of
from webhook.response import Admitted, Refused
from webhook.review import LONGEST_WARNING, MOST_WARNINGS, parse, respond, warnings_of


def test_parse_reads_what_a_review_asks() -> None:
    asked = parse(json.dumps(review_of({"metadata": {"generateName": "x-"}}, dryRun=True)).encode())

    assert (asked.uid, asked.namespace, asked.operation) == ("u-1", "team", "CREATE")
    assert asked.dry_run
    assert asked.creates_pod
    assert asked.name == "x-"
    assert asked.object == {"metadata": {"generateName": "x-"}}


def test_an_answer_without_a_patch_has_no_patch_type() -> None:
    assert respond("u", Admitted())["response"] == {"uid": "u", "allowed": True}


def test_a_refusal_carries_code_and_message() -> None:
    assert respond("u", Refused("no"))["response"] == {
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


def test_what_is_left_out_is_counted() -> None:
    notices = tuple(Notice(Code.CORES_CLAMPED, f"p{number}", "m") for number in range(40))

    assert warnings_of(notices)[-1].startswith("and 11 more")
