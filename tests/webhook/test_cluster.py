"""The webhook's view of a cluster is complete before it counts and follows the version."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from hami_dra.kube.session import Session
from hami_dra.migration import Policy
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from tests.hami_dra.kube.api_double import ApiDouble
from webhook.cluster import Cluster


@asynccontextmanager
async def following(api: ApiDouble, directory: Path, policy: Policy) -> AsyncIterator[Cluster]:
    config = api.write_kubeconfig(directory / "kubeconfig")
    async with await Session.connect(config) as session:
        cluster = Cluster(session, policy)
        assert not all(holds() for holds in cluster.checks.values())
        task = asyncio.create_task(cluster.run())
        async with asyncio.timeout(60):
            while not all(holds() for holds in cluster.checks.values()):  # noqa: ASYNC110 - polled by kubelets too
                await asyncio.sleep(0)
        yield cluster
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_policy_and_cards_are_the_clusters(tmp_path: Path) -> None:
    policy = Policy()
    driver = policy.families[0].driver
    found = resource_slice(cards("l4-24g", 1, "n"), node="n", node_uid="u", driver=driver)
    async with ApiDouble().serving() as api:
        await api.put("resourceslices", found)
        api.fail("GET /version", 200, {"major": "1", "minor": "35"})

        async with following(api, tmp_path, policy) as cluster:
            assert cluster.policy().repeats_cards
            assert cluster.policy() is cluster.policy()
            assert cluster.cards().memory_mib == {23034}


async def test_no_family_means_no_cards(tmp_path: Path) -> None:
    async with (
        ApiDouble().serving() as api,
        following(api, tmp_path, Policy(families=())) as cluster,
    ):
        assert not cluster.cards().memory_mib
