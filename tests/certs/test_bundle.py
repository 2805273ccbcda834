"""The authority is passed on in time, and what cannot be signed with is named."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from certs.authority import CertificateError, KeyPair
from certs.bundle import (
    Authority,
    Lifetimes,
    Renewal,
    ca_bundle,
    create,
    end_of,
    fault,
    parse,
    renewal,
    secret_data,
)
from certs.leaf import issue_leaf, leaf_fault, service_names
from tests.certs.damage import each_with_another_bit

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIFETIMES = Lifetimes(authority=timedelta(days=90), leaf=timedelta(days=9))
NAMES = service_names("webhook", "system", "127.0.0.1")
HOUR = timedelta(hours=1)


def day(number: float) -> datetime:
    return NOW + timedelta(days=number)


def due(authority: Authority, at: datetime, published: datetime | None = NOW) -> Renewal | None:
    return renewal(authority, lifetimes=LIFETIMES, now=at, published_since=published)


@pytest.fixture(scope="module")
def young() -> Authority:
    """One authority, 0 days old."""
    return create(LIFETIMES, now=NOW)


@pytest.fixture(scope="module")
def announced(young: Authority) -> Authority:
    """The same at 60 days, when another one follows."""
    change = due(young, day(60))
    assert change is not None
    return change.authority


@pytest.fixture(scope="module")
def passed_on(announced: Authority) -> Authority:
    """The same an hour later, when the other one signs."""
    change = due(announced, day(60) + HOUR)
    assert change is not None
    return change.authority


def test_the_data_of_a_secret_means_what_was_written(
    young: Authority, announced: Authority, passed_on: Authority
) -> None:
    assert announced.following is not None
    assert passed_on.previous
    for authority in (young, announced, passed_on):
        assert fault(secret_data(authority)) is None
        assert parse(secret_data(authority)) == authority


def test_another_authority_follows_after_two_thirds(young: Authority) -> None:
    assert due(young, day(59.9)) is None
    change = due(young, day(60))

    assert change is not None
    assert change.authority.current == young.current
    assert change.authority.following is not None
    assert end_of(change.authority.following.certificate_pem) == day(150)
    assert "two thirds" in change.reason


def test_it_signs_once_it_was_trusted_everywhere_for_the_overlap(announced: Authority) -> None:
    at = day(60)

    assert due(announced, at + HOUR - timedelta(seconds=1)) is None
    assert due(announced, at + 5 * HOUR, published=None) is None
    assert due(announced, at + 5 * HOUR, published=at + 4.5 * HOUR) is None
    change = due(announced, at + 5 * HOUR, published=at + 4 * HOUR)

    assert change is not None
    assert change.authority.current == announced.following
    assert change.authority.following is None
    assert change.authority.previous == (announced.current.certificate_pem,)


def test_the_last_moments_of_an_authority_do_not_wait_for_registrations(
    announced: Authority,
) -> None:
    change = due(announced, day(90) - HOUR / 2, published=None)

    assert change is not None
    assert change.authority.current == announced.following


def test_the_old_key_is_thrown_away_and_its_certificate_stays_until_it_ends(
    announced: Authority, passed_on: Authority
) -> None:
    assert announced.current.key_pem not in secret_data(passed_on).values()
    assert due(passed_on, day(89.9)) is None
    change = due(passed_on, day(90))

    assert change is not None
    assert change.authority == replace(passed_on, previous=())


def test_passing_on_changes_no_bundle(announced: Authority, passed_on: Authority) -> None:
    """Registrations are written when an authority comes or goes, never in between."""
    assert ca_bundle(announced) == ca_bundle(passed_on)
    assert len(x509.load_pem_x509_certificates(ca_bundle(announced))) == 2


def test_a_bundle_names_each_authority_once(announced: Authority) -> None:
    doubled = replace(announced, previous=(announced.current.certificate_pem,))

    assert ca_bundle(doubled) == ca_bundle(announced)


def test_an_authority_that_ended_while_nobody_looked_is_replaced(
    young: Authority, announced: Authority
) -> None:
    for authority, at in ((young, day(91)), (announced, day(200))):
        change = due(authority, at)

        assert change is not None
        assert end_of(change.authority.current.certificate_pem) == at + LIFETIMES.authority
        assert change.authority.previous == ()


def test_a_follower_takes_over_at_once_from_one_that_ended(announced: Authority) -> None:
    change = due(announced, day(91), published=None)

    assert change is not None
    assert change.authority == Authority(announced.following or announced.current)


def test_a_leaf_is_renewed_after_two_thirds_or_under_another_authority(
    young: Authority, passed_on: Authority
) -> None:
    leaf = issue_leaf(young, NAMES, lifetimes=LIFETIMES, now=NOW)

    assert leaf_fault(None, young, now=NOW) == "none was issued yet"
    assert leaf_fault(leaf, young, now=day(5.9)) is None
    assert leaf_fault(leaf, young, now=day(6)) == "two thirds of its life are over"
    assert leaf_fault(leaf, passed_on, now=NOW) == "another authority signs now"


def test_a_leaf_names_the_service_and_ends_with_its_authority(young: Authority) -> None:
    leaf = issue_leaf(young, NAMES, lifetimes=LIFETIMES, now=day(85))

    found = x509.load_pem_x509_certificate(leaf.pair.certificate_pem)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "webhook.system.svc",
        "webhook.system.svc.cluster.local",
    ]
    assert found.not_valid_after_utc == day(90)


Data = dict[str, bytes]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda _: {}, "it is empty"),
        (lambda data: {**data, "ca.key": b""}, "it lacks ca.key"),
        (lambda data: {"previous.crt": data["ca.crt"]}, "it lacks ca.crt and ca.key"),
        (lambda data: {**data, "ca.crt": b"junk"}, "found no readable PEM"),
        (lambda data: {**data, "ca.key": b"junk"}, "found no readable PEM"),
        (lambda data: {**data, "ca.key": data["next.key"]}, "belongs to another certificate"),
        (lambda data: {**data, "next.crt": data["ca.crt"]}, r"next\.crt and next\.key: .*another"),
        (lambda data: {**data, "next.key": b""}, "it lacks next.key"),
        (lambda data: {**data, "previous.crt": b"junk"}, r"previous\.crt holds no readable"),
    ],
)
def test_every_way_to_be_unfit_has_its_reason(
    announced: Authority, damage: Callable[[Data], Data], reason: str
) -> None:
    found = fault(damage(secret_data(announced)))

    assert found is not None
    assert re.search(reason, found), found


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
@pytest.mark.parametrize("key", ["ca.crt", "ca.key", "previous.crt"])
def test_one_wrong_bit_is_a_fault_or_bears_signing_with(passed_on: Authority, key: str) -> None:
    """Nothing that a hand may do to the Secret ends the replicas that read it."""
    data = secret_data(passed_on)
    faults = 0
    for pem in each_with_another_bit(data[key]):
        if fault({**data, key: pem}) is not None:
            faults += 1
            continue
        found = parse({**data, key: pem})
        assert ca_bundle(found)
        due(found, day(61))
        with suppress(CertificateError):  # it may say that it ended
            issue_leaf(found, NAMES, lifetimes=LIFETIMES, now=day(61))

    assert faults


def test_a_leaf_in_the_place_of_an_authority_is_unfit(young: Authority) -> None:
    leaf: KeyPair = issue_leaf(young, NAMES, lifetimes=LIFETIMES, now=NOW).pair

    found = fault(secret_data(Authority(leaf)))

    assert found is not None
    assert "found the leaf" in found


@pytest.mark.parametrize(("authority_s", "leaf_s"), [(90, 31), (90, 0), (2, 1)])
def test_lifetimes_that_leave_no_time_to_renew_are_refused(authority_s: int, leaf_s: int) -> None:
    with pytest.raises(CertificateError, match="at most a third"):
        Lifetimes(authority=timedelta(seconds=authority_s), leaf=timedelta(seconds=leaf_s))


def test_looks_are_frequent_enough_for_short_lives() -> None:
    short = Lifetimes(authority=timedelta(seconds=60), leaf=timedelta(seconds=16))

    assert short.overlap == timedelta(seconds=5)
    assert short.pause == timedelta(seconds=1.25)
    assert Lifetimes().overlap == HOUR
    assert Lifetimes().pause == timedelta(minutes=1)


def test_a_leaf_from_the_time_before_the_clock_was_set_back_is_replaced(young: Authority) -> None:
    """Nobody trusts it for as long as the clock was wrong."""
    leaf = issue_leaf(young, NAMES, lifetimes=LIFETIMES, now=day(3))

    assert leaf_fault(leaf, young, now=day(2)) == "it is not valid yet: the clock was set back"
    # A client's clock may run a little behind; within that nobody minds.
    assert leaf_fault(leaf, young, now=day(3) - timedelta(minutes=4)) is None


def test_an_authority_that_a_wrong_clock_dated_ahead_is_replaced_at_once(
    young: Authority,
) -> None:
    before = day(-2)

    change = due(young, before)

    assert change is not None
    assert "is not valid before" in change.reason
    assert end_of(change.authority.current.certificate_pem) == before + LIFETIMES.authority
    assert change.authority.previous == ()


def test_a_follower_that_a_wrong_clock_dated_ahead_is_replaced_when_it_is_needed(
    young: Authority,
) -> None:
    ahead = replace(young, following=create(LIFETIMES, now=day(80)).current)
    assert due(ahead, day(59)) is None

    change = due(ahead, day(61))

    assert change is not None
    assert "the following authority is not valid before" in change.reason
    assert change.authority.current == young.current
    assert due(change.authority, day(61)) is None


def test_a_fit_follower_takes_over_at_once_from_an_authority_dated_ahead(
    young: Authority, announced: Authority
) -> None:
    swapped = replace(announced, current=announced.following or young.current)
    swapped = replace(swapped, following=announced.current)

    change = due(swapped, day(30))

    assert change is not None
    assert change.authority == Authority(announced.current)
