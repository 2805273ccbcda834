"""A claim's shares are what the scheduler gave, added up once more, or refused in a sentence."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.migration import Json
from hami_dra.node.allocation import PrepareError
from hami_dra.node.books import Books
from hami_dra.node.inventory import Card
from hami_dra.node.prepare import Holding, Node, plan
from hami_dra.node.record import Record, State
from hami_dra.node.share import Amounts, CardLimit, card_limits, cuda_position
from tests.hami_dra.node.claims import CARDS, DEVICES, DRIVER, NODE, claim, nobody, result

CARDS_BY_UUID = {card.uuid: card for card in CARDS}
HERE = Node(NODE, DRIVER, CARDS_BY_UUID)


def test_a_share_is_what_the_scheduler_charged() -> None:
    [share] = plan(claim(result(1, share="s1")), HERE, nobody)

    assert share.uuid == CARDS[1].uuid
    assert share.device == DEVICES[1]
    assert share.share_id == "s1"
    assert share.request == "gpu"
    assert share.amounts == Amounts(4096, 30, 10)


def test_a_sub_request_is_known_by_its_request() -> None:
    [share] = plan(claim(result(request="gpu/mib-81920")), HERE, nobody)

    assert share.request == "gpu"


def test_results_of_other_drivers_are_passed_over() -> None:
    other = result() | {"driver": "nic.example.com", "device": "eth0", "adminAccess": True}

    shares = plan(claim(other, result(2)), HERE, nobody)

    assert [share.uuid for share in shares] == [CARDS[2].uuid]
    assert plan(claim(other), HERE, nobody) == ()


def test_one_card_twice_in_a_claim_is_two_shares_and_one_limit() -> None:
    shares = plan(claim(result(0), result(0, cores="20", request="more")), HERE, nobody)

    assert len({share.suffix for share in shares}) == 2
    assert card_limits(shares, CARDS_BY_UUID) == (CardLimit(CARDS[0].uuid, 8192, 50),)


def test_a_share_without_a_core_limit_frees_the_card_for_the_claim() -> None:
    shares = plan(claim(result(0), result(0, cores="0")), HERE, nobody)

    assert card_limits(shares, CARDS_BY_UUID) == (CardLimit(CARDS[0].uuid, 8192, 0),)


def test_limits_come_in_cuda_order_whatever_the_order_of_results() -> None:
    order = [2, 0, 1]
    shares = plan(claim(*(result(each, memory=f"{each + 1}Gi") for each in order)), HERE, nobody)

    assert [limit.memory_mib for limit in card_limits(shares, CARDS_BY_UUID)] == [1024, 2048, 3072]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("0000:0A:00.0", "0000:10:00.0"),
        ("00000000:09:00.0", "0000:0a:00.0"),
        ("0000:ff:00.0", "0001:00:00.0"),
        ("0000:01:00.0", "0000:01:00.1"),
    ],
)
def test_bus_ids_are_compared_as_numbers(first: str, second: str) -> None:
    def at(bus: str) -> Card:
        return dataclasses.replace(CARDS[0], pcie_bus_id=bus)

    assert cuda_position(at(first)) < cuda_position(at(second))


def test_a_share_of_upstreams_driver_counts_as_one_tenant() -> None:
    [share] = plan(claim(result(slots=None)), HERE, nobody)

    assert share.amounts.slots == 10


REFUSALS: dict[str, tuple[Json, str]] = {
    "not allocated": ({"metadata": {"uid": "u"}}, "has no allocation"),
    "admin": (claim(result(adminAccess=True)), "asks for adminAccess"),
    "pool": (claim(result(pool="n2")), "belongs to pool 'n2'"),
    "unknown card": (claim(result("hami-gpu-0")), "is not on this node"),
    "no amounts": (claim(result(memory=None, cores=None, slots=None)), "DRAConsumableCapacity"),
    "no memory": (claim(result(memory=None)), "allocated with no memory"),
    "no cores": (claim(result(cores=None)), "allocated with no cores"),
    "foreign amount": (
        claim(result() | {"consumedCapacity": {"memory": "1Gi", "cores": "1", "shares": "1"}}),
        "allocated with unknown shares",
    ),
    "odd memory": (claim(result(memory="1500000")), "multiple of 1Mi"),
    "no quantity": (claim(result(memory="lots")), "found 'lots'"),
    "fraction": (claim(result(cores="500m")), "whole number"),
    "negative": (claim(result(cores="-1")), "expected 0 or more"),
    "twins": (claim(result(share=None), result(share=None)), "twice in one request"),
    "configuration": (
        claim(
            result(),
            config=[
                {
                    "source": "FromClaim",
                    "opaque": {"driver": DRIVER, "parameters": {"kind": "GpuConfig"}},
                }
            ],
        ),
        "has no parameters",
    ),
    "memory": (claim(result(memory="81Gi")), "82944 Mi of memory on top of 0 of 81920"),
    "own sum": (
        claim(result(cores="60"), result(cores="60")),
        "60 % of compute on top of 60 of 100, held by ns/c",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_honoured_is_refused_in_a_sentence(case: str) -> None:
    refused, expected = REFUSALS[case]

    with pytest.raises(PrepareError) as caught:
        plan(refused, HERE, nobody)

    assert expected in str(caught.value)


def test_a_card_that_is_lost_is_refused_and_its_neighbour_is_not() -> None:
    here = dataclasses.replace(HERE, lost={CARDS[1].uuid: "the card has fallen off the bus"})

    assert plan(claim(result(0)), here, nobody)
    with pytest.raises(PrepareError, match="cannot be used: the card has fallen off the bus"):
        plan(claim(result(0), result(1)), here, nobody)


def test_configuration_of_other_drivers_is_theirs() -> None:
    theirs = {"opaque": {"driver": "nic.example.com", "parameters": {"kind": "X"}}}

    assert plan(claim(result(), config=[theirs]), HERE, nobody)


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (Amounts(memory_mib=80000), "4096 Mi of memory on top of 80000 of 81920"),
        (Amounts(cores=71), "30 % of compute on top of 71 of 100"),
        (Amounts(slots=95), "10 slots on top of 95 of 100"),
    ],
)
def test_over_commit_is_refused_with_the_holders(held: Amounts, expected: str) -> None:
    names = tuple(f"ns/c{number}" for number in range(5))

    with pytest.raises(PrepareError) as caught:
        plan(claim(result()), HERE, {CARDS[0].uuid: Holding(held, 5, names)}.get)

    assert expected in str(caught.value)
    assert "held by ns/c0, ns/c1, ns/c2 and 2 more" in str(caught.value)


def test_one_tenant_too_many_is_refused_where_slots_do_not_add_up_to_the_card() -> None:
    thirteen = dataclasses.replace(HERE, split_count=13)
    small = {"memory": "1Gi", "cores": "0", "slots": "7"}
    held = {CARDS[0].uuid: Holding(Amounts(13 * 1024, 0, 91), 13, ("ns/others",))}

    with pytest.raises(PrepareError, match="1 tenant on top of 13 of 13"):
        plan(claim(result() | {"consumedCapacity": small}), thirteen, held.get)


amounts = st.tuples(st.integers(1, 90_000), st.integers(0, 110), st.integers(0, 110))


@given(st.lists(st.tuples(st.integers(0, 2), amounts), max_size=25))
def test_whatever_is_accepted_fits_the_cards(asked: list[tuple[int, tuple[int, int, int]]]) -> None:
    records: list[Record] = []
    for number, (card, (memory, cores, slots)) in enumerate(asked):
        one = claim(result(card, memory=f"{memory}Mi", cores=str(cores), slots=str(slots)))
        try:
            shares = plan(one, HERE, Books(records).held)
        except PrepareError:
            continue
        records.append(Record(str(number), "ns", "c", State.PREPARED, shares))

    for holding in Books(records).holdings().values():
        assert holding.amounts.memory_mib <= 81920
        assert holding.amounts.cores <= 100
        assert holding.amounts.slots <= 100
        assert holding.tenants <= 10
