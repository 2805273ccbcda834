"""What a replica may conclude from a ledger and from what it has seen, one situation at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration import Family
from hami_dra.quota import Asked, Claimed, Known, Ledger, Quota, View, admit, settle
from hami_dra.quota.claim import Share
from hami_dra.quota.ledger import DamagedLedgerError
from hami_dra.quota.limit import Limit, Meaning

MEMORY = "nvidia.com/gpumem"
QUOTA = Quota("q", "n", "q", (Limit(f"limits.{MEMORY}", Meaning(MEMORY, "MiB"), 10),))


def asked(uid: str, memory: int) -> Asked:
    return Asked(uid, f"claim-{uid}", {MEMORY: memory})


def known(uid: str, version: int, memory: int) -> Known:
    share = Share(Family(), 1, memory, 0)
    return Known(uid, f"claim-{uid}", version, Claimed(((share,),)))


def view(*claims: Known, version: int = 0, **seen: int) -> View:
    return View.of(claims, {}, version=version, gone=seen)


def live(*claims: Known) -> View:
    return View.of(claims, {}, version=0, is_live=True)


def test_claims_of_one_batch_count_against_each_other_in_order() -> None:
    after, answers = admit(Ledger(), view(), [QUOTA], [asked("a", 6), asked("b", 6), asked("c", 4)])

    assert list(after.reserved) == ["a", "c"]
    assert [bool(answer) for answer in answers] == [False, True, False]


def test_what_is_reserved_and_not_shown_counts_and_what_is_shown_counts_once() -> None:
    ledger = Ledger(0, {"a": asked("a", 6)})

    _, hidden = admit(ledger, view(), [QUOTA], [asked("b", 5)])
    _, shown = admit(ledger, view(known("a", 7, 6)), [QUOTA], [asked("b", 4)])
    _, gone = admit(ledger, view(a=7), [QUOTA], [asked("b", 10)])

    assert "used: limits.nvidia.com/gpumem=6 MiB" in hidden[0]
    assert shown == gone == [""]


def test_a_claim_that_is_asked_about_twice_is_admitted_twice_and_counted_once() -> None:
    first, _ = admit(Ledger(), view(), [QUOTA], [asked("a", 6)])

    again, answers = admit(first, view(), [QUOTA], [asked("a", 6)])
    _, once_created = admit(Ledger(), view(known("a", 7, 6)), [QUOTA], [asked("a", 6)])

    assert (again, answers, once_created) == (first, [""], [""])


def test_whoever_takes_a_claim_out_has_the_others_look_as_far_as_it_did() -> None:
    """A replica that has not seen the claim must not take the ledger for the whole truth."""
    ledger = Ledger(3, {"a": asked("a", 6), "b": asked("b", 1)})

    settled = settle(ledger, view(known("a", 7, 6), version=9))

    assert settled == Ledger(7, {"b": asked("b", 1)})
    assert not view(version=6).suffices(settled, {})
    assert view(version=7).suffices(settled, {})
    assert live().suffices(settled, {})


def test_a_claim_that_is_gone_again_is_taken_out_by_the_version_it_was_seen_at() -> None:
    assert settle(Ledger(3, {"a": asked("a", 6)}), view(version=9, a=8)) == Ledger(8)


def test_claims_from_before_the_quota_must_be_known_too() -> None:
    assert not view(version=6).suffices(Ledger(), {"q": 7})
    assert view(version=7).suffices(Ledger(), {"q": 7})


def test_a_claim_that_never_came_is_forgotten_only_when_that_is_certain() -> None:
    ledger = Ledger(0, {"a": asked("a", 6)})

    assert settle(ledger, view(), {"a"}) == ledger
    assert settle(ledger, live(), {"a"}) == Ledger(0)
    assert settle(ledger, live(), set()) == ledger
    assert settle(ledger, live(known("a", 9, 6)), {"a"}) == Ledger(9)


def test_what_was_read_live_replaces_versions_from_before_a_restore() -> None:
    assert settle(Ledger(9999), live(known("a", 7, 6))).through == 7


@given(
    st.integers(0),
    st.dictionaries(
        st.text(max_size=4),
        st.dictionaries(st.text(max_size=4), st.integers() | st.none(), max_size=3),
        max_size=3,
    ),
)
def test_a_ledger_comes_back_as_it_was(
    through: int, claims: dict[str, dict[str, int | None]]
) -> None:
    ledger = Ledger(through, {uid: Asked(uid, "x", amounts) for uid, amounts in claims.items()})

    assert Ledger.from_text(ledger.as_text()) == ledger


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"through": 1}',
        '{"through": "1", "claims": {}}',
        '{"through": 1, "claims": []}',
        '{"through": 1, "claims": {"a": {"name": "x", "amounts": {"m": "1"}}}}',
        '{"through": 1, "claims": {"a": {"name": "x", "amounts": {"m": true}}}}',
        "[" * 100_000,
    ],
)
def test_what_somebody_else_wrote_is_told(text: str) -> None:
    with pytest.raises(DamagedLedgerError, match="found"):
        Ledger.from_text(text)
