"""The sizes of a cluster's cards follow its slices, and only what can be shared counts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest_asyncio

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.cards import ClusterCards
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from hami_dra.migration.inventory import sizes_of
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from tests.hami_dra.kube.api_double import SLICES, ApiDouble

DRIVER = "gpu.example.com"
KIND = "resourceslices"


def a_slice(profile: str, node: str, driver: str = DRIVER) -> Json:
    return resource_slice(cards(profile, 2, node), node=node, node_uid="u", driver=driver)


@pytest_asyncio.fixture
async def known(
    api: ApiDouble, session: Session, backoff: Callable[[], Backoff]
) -> AsyncIterator[ClusterCards]:
    await api.put(KIND, a_slice("a100-80g", "n1"))
    found = ClusterCards(session, DRIVER, backoff=backoff())
    task = asyncio.create_task(found.run())
    await asyncio.wait_for(found.synced(), timeout=60)
    await api.called(f"WATCH {SLICES}", 1)
    yield found
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _until(known: ClusterCards, sizes: set[int]) -> None:
    while known.current().memory_mib != sizes:  # noqa: ASYNC110 - the public sign of progress
        await asyncio.sleep(0)


async def test_the_sizes_follow_the_slices(api: ApiDouble, known: ClusterCards) -> None:
    assert known.is_synced
    assert known.current().memory_mib == {81920}

    await api.put(KIND, a_slice("l4-24g", "n2"))
    await _until(known, {81920, 23034})
    await api.remove(KIND, "", a_slice("a100-80g", "n1")["metadata"]["name"])
    await _until(known, {23034})


async def test_an_older_generation_of_a_pool_does_not_count(
    api: ApiDouble, known: ClusterCards
) -> None:
    newer = a_slice("h100-80g", "n1")
    newer["metadata"]["name"] = "another"
    newer["spec"]["pool"]["generation"] = 2

    await api.put(KIND, newer)

    await _until(known, {81559})


def test_only_shareable_cards_of_the_type_count() -> None:
    item = a_slice("a100-80g", "n1")
    whole, other, sizeless, qualified = (dict(item["spec"]["devices"][0]) for _ in range(4))
    whole["allowMultipleAllocations"] = False
    other["attributes"] = {"type": {"string": "vfio"}}
    sizeless["capacity"] = {"memory": {"value": "a lot"}}
    qualified["attributes"] = {f"{DRIVER}/type": {"string": "hami-gpu"}}
    qualified["capacity"] = {f"{DRIVER}/memory": {"value": "1073741825"}}
    bare: Json = {"name": "bare", "allowMultipleAllocations": True}
    item["spec"]["devices"] = [whole, other, sizeless, qualified, bare]

    assert sizes_of(item, driver=DRIVER, card_type="hami-gpu").memory_mib == {1024}


def test_an_empty_slice_has_no_sizes() -> None:
    item: Json = {"spec": {"pool": {"name": "p", "generation": 1}}}

    assert not sizes_of(item, driver=DRIVER, card_type="hami-gpu").memory_mib
