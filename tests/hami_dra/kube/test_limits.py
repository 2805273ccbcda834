"""What LimitRanges insist on is known by namespace, and only of resources that are ours."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.limits import ClusterLimits, limits_of
from hami_dra.kube.session import Session
from hami_dra.migration import Json, NamespaceLimits
from tests.hami_dra.kube.api_double import LIMITS, ApiDouble

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"


def limit_range(name: str, namespace: str, **bounds: Json) -> Json:
    limits = [{"type": "Container", **bounds}]
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": limits}}


async def _until(known: ClusterLimits, namespace: str, expected: NamespaceLimits) -> None:
    while known.current(namespace) != expected:  # noqa: ASYNC110 - the public sign of progress
        await asyncio.sleep(0)


def test_a_ratio_demands_an_amount_as_a_minimum_does() -> None:
    """The API server refuses a pod that has none, and one that has zero."""
    found = limits_of(
        limit_range("a", "team", maxLimitRequestRatio={GPU: "1", "cpu": "2"}),
        frozenset({GPU, MEMORY}),
    )

    assert found == NamespaceLimits(minimum=frozenset({GPU}))


async def test_several_ranges_of_a_namespace_add_up_and_follow_changes(
    api: ApiDouble, session: Session, backoff: Callable[[], Backoff]
) -> None:
    await api.put("limitranges", limit_range("a", "team", max={GPU: "4", "cpu": "8"}))
    await api.put("limitranges", limit_range("b", "team", min={MEMORY: "100", GPU: "0"}))
    await api.put("limitranges", limit_range("a", "other", max={"cpu": "8"}, default={GPU: "1"}))
    known = ClusterLimits(session, {GPU, MEMORY}, backoff=backoff())
    task = asyncio.create_task(known.run())
    both = NamespaceLimits(maximum=frozenset({GPU}), minimum=frozenset({MEMORY}))

    async with asyncio.timeout(60):
        await _until(known, "team", both)
        assert known.is_synced
        assert known.current("other") == known.current("nowhere") == NamespaceLimits()
        await api.called(f"WATCH {LIMITS}", 1)
        await api.remove("limitranges", "team", "b")
        await _until(known, "team", NamespaceLimits(maximum=frozenset({GPU})))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
