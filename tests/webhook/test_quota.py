"""Quotas in the path of admission: pods early, claims for good, dry runs without a trace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.kube.session import Session
from hami_dra.kube.templates import MemoryTemplates
from hami_dra.migration import Cards, Json, Policy, RejectedPod
from hami_dra.migration.names import DRIVER
from hami_dra.quota import read_claim
from tests.hami_dra.kube.api_double import ApiDouble
from tests.webhook.reviews import answer_of, get, gpu_pod, post, review_of
from tests.webhook.test_app import json_values
from webhook.app import Dependencies, create_app
from webhook.cluster import Cluster

MEMORY = "limits.nvidia.com/gpumem"
CLAIMS = {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"}


def claim(uid: str, memory: str) -> Json:
    capacity = {"requests": {"memory": memory, "cores": "0"}}
    exactly = {"deviceClassName": DRIVER, "capacity": capacity}
    return {
        "metadata": {"name": f"claim-{uid}", "namespace": "team", "uid": uid},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def quota(**hard: int) -> Json:
    amounts = {f"limits.nvidia.com/{name}": str(amount) for name, amount in hard.items()}
    metadata = {"name": "gpus", "namespace": "team", "uid": "q"}
    return {"metadata": metadata, "spec": {"hard": amounts}}


def claim_review(item: Json, **request: object) -> Json:
    return review_of(item, resource=CLAIMS, **request)


async def validate(app: FastAPI, body: Json | bytes) -> httpx.Response:
    return await post(app, body, path="/validate")


claims = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(DRIVER),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("devices", "requests", "name", "exactly", "firstAvailable", "count"),
                    *("deviceClassName", "capacity", "memory", "cores", "selectors", "cel"),
                    *("allocation", "results", "driver", "request", "consumedCapacity"),
                    *("reservedFor", "allocationMode", "adminAccess"),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
).filter(lambda drawn: isinstance(drawn, dict))


@pytest.fixture
def templates() -> MemoryTemplates:
    return MemoryTemplates()


@asynccontextmanager
async def serving(
    api: ApiDouble, directory: Path, templates: MemoryTemplates
) -> AsyncIterator[FastAPI]:
    """Serve with the quotas of a cluster."""
    config = api.write_kubeconfig(directory / "kubeconfig")
    async with await Session.connect(config) as session:
        cluster = Cluster(session, Policy())
        task = asyncio.create_task(cluster.run())
        async with asyncio.timeout(60):
            while not all(holds() for holds in cluster.checks.values()):  # noqa: ASYNC110 - polled
                await asyncio.sleep(0)
        yield create_app(
            Dependencies(
                templates=templates,
                quotas=cluster.quotas,
                cards=lambda: Cards(frozenset({81920})),
                collectors=(cluster.quotas,),
            )
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_that_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, templates: MemoryTemplates
) -> None:
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", quota(gpumem=16000))
        await api.put("resourceclaims", claim("old", "10000Mi"))
        async with serving(api, tmp_path, templates) as app:
            fits = answer_of(await post(app, review_of(gpu_pod(gpu="1", gpumem="6000"))))
            too_much = gpu_pod("b", gpu="2", gpumem="3001")
            refused = answer_of(await post(app, review_of(too_much)))
            shown = (await get(app, "/metrics")).text

    assert fits["allowed"] is True
    assert len(templates.objects) == 1
    assert refused["status"] == {
        "code": 403,
        "reason": "Forbidden",
        "message": f"exceeded quota: gpus, requested: {MEMORY}=6002 MiB, used: {MEMORY}=10000 MiB,"
        f" limited: {MEMORY}=16000 MiB",
    }
    labels = f'{{key="{MEMORY}",namespace="team",quota="gpus"}}'
    assert f"hami_dra_quota_used{labels} 10000.0" in shown
    assert f"hami_dra_quota_hard{labels} 16000.0" in shown
    assert 'hami_dra_quota_refusals_total{what="pod"} 1.0' in shown
    assert 'hami_dra_quota_refusals_total{what="claim"} 0.0' in shown


async def test_a_claim_is_admitted_only_with_a_reservation_and_a_dry_run_makes_none(
    tmp_path: Path, templates: MemoryTemplates
) -> None:
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", quota(gpumem=16000))
        async with serving(api, tmp_path, templates) as app:
            dry = answer_of(await validate(app, claim_review(claim("a", "9Gi"), dryRun=True)))
            writes = [call for call in api.calls if not call.startswith(("GET", "WATCH"))]
            over = answer_of(await validate(app, claim_review(claim("b", "16Gi"), dryRun=True)))
            real = answer_of(await validate(app, claim_review(claim("a", "9Gi"))))
            more = answer_of(await validate(app, claim_review(claim("c", "9Gi"))))

    assert dry["allowed"] is True
    assert writes == []
    assert over["allowed"] is more["allowed"] is False
    assert f"used: {MEMORY}=9216 MiB" in more["status"]["message"]
    assert real == {"uid": "u-1", "allowed": True}


async def test_an_author_cannot_say_what_a_claim_was_given(
    tmp_path: Path, templates: MemoryTemplates
) -> None:
    forged = claim("a", "9Gi")
    result = {"request": "gpu", "driver": DRIVER, "consumedCapacity": {"memory": "1Mi"}}
    forged["status"] = {"allocation": {"devices": {"results": [result]}}}
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", quota(gpumem=9000))
        async with serving(api, tmp_path, templates) as app:
            answer = answer_of(await validate(app, claim_review(forged)))

    assert "gpumem=9216 MiB" in answer["status"]["message"]


async def test_the_series_go_with_the_quota(tmp_path: Path, templates: MemoryTemplates) -> None:
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", quota(gpumem=16000, gpucores=100))
        async with serving(api, tmp_path, templates) as app:
            before = (await get(app, "/metrics")).text
            await api.remove("resourcequotas", "team", "gpus")
            async with asyncio.timeout(60):
                while (after := (await get(app, "/metrics")).text).count("quota_used{"):  # noqa: ASYNC110 - scraped
                    await asyncio.sleep(0)

    assert before.count("hami_dra_quota_used{") == 2
    assert "hami_dra_quota_hard{" not in after


async def test_what_a_quota_cannot_hold_is_a_warning(
    tmp_path: Path, templates: MemoryTemplates
) -> None:
    scoped = {**quota(gpumem=16000, **{"gpumem-percentage": 50})}
    scoped["spec"]["scopes"] = ["NotTerminating"]
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", scoped)
        async with serving(api, tmp_path, templates) as app:
            gpu = answer_of(await post(app, review_of(gpu_pod(gpu="1", gpumem="1"))))
            none = answer_of(await post(app, review_of(gpu_pod(gpu="0"))))

    warnings = "\n".join(gpu["warnings"])
    assert "QuotaNotHeld" in warnings
    assert "limits.nvidia.com/gpumem-percentage" in warnings
    assert "NotTerminating" in warnings
    assert "warnings" not in none


async def test_a_failure_to_reserve_is_ours(tmp_path: Path, templates: MemoryTemplates) -> None:
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", quota(gpumem=16000))
        async with serving(api, tmp_path, templates) as app:
            api.fail("POST /api/v1/namespaces/hami-dra-system/configmaps", 403)

            response = await validate(app, claim_review(claim("a", "1Gi")))

    assert response.status_code == 500


@pytest.mark.parametrize(
    "review",
    [
        claim_review(claim("a", "1Gi"), operation="DELETE", object=None),
        claim_review(claim("a", "1Gi"), subResource="status"),
        review_of(gpu_pod(gpu="1")),
    ],
)
async def test_anything_but_the_creation_of_a_claim_passes(
    tmp_path: Path, templates: MemoryTemplates, review: Json
) -> None:
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", quota(gpumem=0, gpucores=0))
        async with serving(api, tmp_path, templates) as app:
            assert answer_of(await validate(app, review))["allowed"] is True


async def test_a_claim_needs_a_namespace_and_the_form_of_one(
    tmp_path: Path, templates: MemoryTemplates
) -> None:
    async with ApiDouble().serving() as api:
        await api.put("resourcequotas", quota(gpumem=100))
        async with serving(api, tmp_path, templates) as app:
            nowhere = await validate(app, claim_review(claim("a", "1Gi"), namespace=""))
            formless = answer_of(await validate(app, claim_review({"spec": {"devices": 1}})))

    assert nowhere.status_code == 400
    assert formless["status"]["code"] == 422


async def test_without_a_cluster_there_are_no_quotas(templates: MemoryTemplates) -> None:
    app = create_app(Dependencies(templates=templates))

    assert answer_of(await validate(app, claim_review(claim("a", "1Gi"))))["allowed"] is True


@given(item=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), json_values))
def test_no_claim_makes_us_fail(item: Json) -> None:
    with suppress(RejectedPod):
        read_claim(item, Policy())


@given(spec=claims)
def test_no_spec_makes_us_fail(spec: Json) -> None:
    with suppress(RejectedPod):
        read_claim({"spec": spec, "status": spec}, Policy()).claimed.amounts({DRIVER: 1})
