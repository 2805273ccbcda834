"""Reservations of replicas that share nothing but the API server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.quotas import ClusterQuotas
from hami_dra.kube.session import Session
from hami_dra.migration import Json, Policy
from hami_dra.migration.names import DRIVER
from hami_dra.quota import Asked
from tests.hami_dra.kube.api_double import API, ApiDouble

HOME = "hami-dra-system"
MEMORY = "nvidia.com/gpumem"
LEDGERS = f"/api/v1/namespaces/{HOME}/configmaps"
LEDGER = f"{LEDGERS}/hami-dra-quota-team"
CLAIMS = f"{API}/namespaces/team/resourceclaims"

Start = Callable[..., AbstractAsyncContextManager[ClusterQuotas]]


def quota(limit: int, name: str = "gpus") -> Json:
    metadata = {"name": name, "namespace": "team", "uid": f"quota-{name}"}
    return {"metadata": metadata, "spec": {"hard": {f"limits.{MEMORY}": str(limit)}}}


def claim(uid: str, memory: int) -> Json:
    capacity = {"requests": {"memory": f"{memory}Mi", "cores": "0"}}
    exactly = {"deviceClassName": DRIVER, "capacity": capacity}
    return {
        "metadata": {"name": f"claim-{uid}", "namespace": "team", "uid": uid},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def asked(uid: str, memory: int) -> Asked:
    return Asked(uid, f"claim-{uid}", {MEMORY: memory})


@pytest.fixture
def start(session: Session, backoff: Callable[[], Backoff]) -> Start:
    """Return how to start a replica; the block begins when it knows the cluster."""

    @asynccontextmanager
    async def replica(*, overdue_s: float = 90) -> AsyncIterator[ClusterQuotas]:
        found = ClusterQuotas(
            session,
            Policy(),
            sizes=lambda: {DRIVER: 81920},
            home=HOME,
            overdue_s=overdue_s,
            backoff=backoff,
        )
        task = asyncio.create_task(found.run())
        await until(lambda: found.is_synced)
        yield found
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    return replica


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the public sign of progress
            await asyncio.sleep(0)


def reserved(api: ApiDouble) -> dict[str, Json]:
    """Return the claims that the ledger holds."""
    text = api.found("configmaps", HOME, "hami-dra-quota-team")["data"]["ledger"]
    claims: dict[str, Json] = json.loads(text)["claims"]
    return claims


async def test_without_a_quota_nothing_is_asked_and_nothing_written(
    api: ApiDouble, start: Start
) -> None:
    other = quota(5)
    other["spec"]["hard"] = {"pods": "5"}
    await api.put("resourcequotas", other)
    async with start() as quotas:
        before = [call for call in api.calls if not call.startswith("WATCH")]

        assert await quotas.reserve("team", asked("a", 999_999)) == ""

        assert [call for call in api.calls if not call.startswith("WATCH")] == before
        assert quotas.refusal("team", {MEMORY: 999_999}) == ""
        assert list(quotas.figures()) == []


async def test_replicas_that_race_admit_what_fits_and_no_more(api: ApiDouble, start: Start) -> None:
    await api.put("resourcequotas", quota(10))
    await api.put("resourceclaims", claim("old", 1))
    async with start() as one, start() as two:
        said = await asyncio.gather(
            *((one, two)[n % 2].reserve("team", asked(str(n), 2)) for n in range(40))
        )

        assert said.count("") == 4
        assert len(reserved(api)) == 4
        assert all("used: limits.nvidia.com/gpumem=9 MiB" in each for each in said if each)


async def test_claims_that_come_together_are_written_together(api: ApiDouble, start: Start) -> None:
    await api.put("resourcequotas", quota(1000))
    async with start() as quotas:
        await quotas.reserve("team", asked("first", 1))

        await asyncio.gather(*(quotas.reserve("team", asked(str(n), 1)) for n in range(50)))

        assert len(reserved(api)) == 51
        assert api.count(f"PUT {LEDGER}") <= 3


async def test_a_ledger_says_whose_it_is(api: ApiDouble, start: Start) -> None:
    await api.put("resourcequotas", quota(10))
    async with start() as quotas:
        await quotas.reserve("team", asked("a", 1))
        await quotas.reserve("team", asked("b", 1))

    metadata = api.found("configmaps", HOME, "hami-dra-quota-team")["metadata"]
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Namespace", "team", "uid-team")
    assert metadata["labels"]["app.kubernetes.io/managed-by"] == "hami-dra"


async def test_what_has_shown_itself_leaves_the_ledger_and_a_deletion_frees(
    api: ApiDouble, start: Start
) -> None:
    """Also a claim that is gone before the ledger is written again."""
    await api.put("resourcequotas", quota(10))
    async with start() as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""
        await until(lambda: used(quotas) == 10)
        await api.put("resourceclaims", claim("a", 10))
        await until(lambda: "a" in quotas._shown.get("team", {}))  # noqa: SLF001 - no other sign
        assert await quotas.reserve("team", asked("b", 1))
        await api.remove("resourceclaims", "team", "claim-a")
        await until(lambda: used(quotas) == 0)

        assert await quotas.reserve("team", asked("c", 10)) == ""

        assert list(reserved(api)) == ["c"]


def used(quotas: ClusterQuotas) -> int | None:
    [figure] = quotas.figures()
    return figure.used


async def test_a_claim_that_never_came_gives_its_share_back_in_the_end(
    api: ApiDouble, start: Start
) -> None:
    """The API server, or another webhook, refused it after us; or a replica died on the way."""
    await api.put("resourcequotas", quota(10))
    async with start(overdue_s=0) as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""

        assert await quotas.reserve("team", asked("b", 10)) == ""
        assert list(reserved(api)) == ["b"]
    async with start(overdue_s=90) as quotas:
        assert await quotas.reserve("team", asked("c", 1))


async def test_a_claim_that_never_came_keeps_no_pod_out_for_ever(
    api: ApiDouble, start: Start
) -> None:
    """A pod that is refused makes no claim, and only a claim is decided with a look at the rest."""
    await api.put("resourcequotas", quota(10))
    async with start(overdue_s=0) as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""

        await until(lambda: quotas.refusal("team", {MEMORY: 10}) == "")
        assert used(quotas) == 0
        assert await quotas.reserve("team", asked("b", 10)) == ""


async def test_a_claim_that_ended_before_a_replica_began_keeps_no_pod_out(
    api: ApiDouble, start: Start
) -> None:
    """The last claim of a namespace stays in its ledger until the next one is decided."""
    await api.put("resourcequotas", quota(10))
    async with start() as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""
        await api.put("resourceclaims", claim("a", 10))
        await until(lambda: "a" in quotas._shown.get("team", {}))  # noqa: SLF001 - no other sign
        await api.remove("resourceclaims", "team", "claim-a")
        await until(lambda: quotas.refusal("team", {MEMORY: 10}) == "")

    async with start(overdue_s=0) as restarted:
        await until(lambda: restarted.refusal("team", {MEMORY: 10}) == "")


async def test_a_refusal_goes_on_costing_nothing(api: ApiDouble, start: Start) -> None:
    """However old what the ledger holds: a full namespace is where most claims are refused."""
    await api.put("resourcequotas", quota(10))
    async with start(overdue_s=0) as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""
        await api.put("resourceclaims", claim("a", 10))
        await until(lambda: "a" in quotas._shown.get("team", {}))  # noqa: SLF001 - no other sign
        reads = api.count(f"GET {CLAIMS}")

        for uid in "bcd":
            assert await quotas.reserve("team", asked(uid, 1))

        assert api.count(f"GET {CLAIMS}") == reads


async def test_what_never_came_is_looked_for_once(api: ApiDouble, start: Start) -> None:
    """Also where whoever asks then does not fit all the same."""
    await api.put("resourcequotas", quota(10))
    async with start(overdue_s=0) as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""
        reads = api.count(f"GET {CLAIMS}")

        for uid in "bcd":
            assert await quotas.reserve("team", asked(uid, 11))

        assert api.count(f"GET {CLAIMS}") == reads + 1
        assert reserved(api) == {}


async def test_a_late_claim_is_not_taken_for_one_that_never_came(
    api: ApiDouble, start: Start
) -> None:
    """However old a reservation is, the claims are read before it is given away."""
    await api.put("resourcequotas", quota(10))
    async with start(overdue_s=0) as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""
        await api.end_streams()
        await api.put("resourceclaims", claim("a", 10))

        assert "used: limits.nvidia.com/gpumem=10 MiB" in await quotas.reserve(
            "team", asked("b", 1)
        )


async def test_a_replica_that_lags_behind_the_ledger_reads_the_claims(
    api: ApiDouble, start: Start
) -> None:
    await api.put("resourcequotas", quota(10))
    async with start() as quotas:
        assert await quotas.reserve("team", asked("a", 1)) == ""
        stored = api.found("configmaps", HOME, "hami-dra-quota-team")
        # Another replica has seen what this one has not, and took it out of the ledger.
        ahead = {"ledger": json.dumps({"through": 10**9, "claims": {}})}
        await api.put("configmaps", {**stored, "data": ahead})
        reads = api.count(f"GET {CLAIMS}")

        assert await quotas.reserve("team", asked("b", 1)) == ""

        assert api.count(f"GET {CLAIMS}") == reads + 1


@pytest.mark.parametrize("data", [{}, {"ledger": "junk"}, {"ledger": "{}"}])
async def test_a_damaged_ledger_is_begun_anew_from_the_claims(
    api: ApiDouble, start: Start, data: Json
) -> None:
    await api.put("resourcequotas", quota(10))
    await api.put("resourceclaims", claim("old", 9))
    async with start() as quotas:
        await quotas.reserve("team", asked("a", 1))
        stored = api.found("configmaps", HOME, "hami-dra-quota-team")
        await api.put("configmaps", {**stored, "data": data})
        await until(lambda: used(quotas) == 9)

        assert await quotas.reserve("team", asked("b", 2))
        assert await quotas.reserve("team", asked("c", 1)) == ""
        assert list(reserved(api)) == ["c"]


@pytest.mark.parametrize("status", [403, 500])
async def test_who_cannot_reserve_admits_nobody(api: ApiDouble, start: Start, status: int) -> None:
    await api.put("resourcequotas", quota(10))
    async with start() as quotas:
        api.fail(f"POST {LEDGERS}", status)
        with pytest.raises(ApiError):
            await quotas.reserve("team", asked("a", 1))

        assert await quotas.reserve("team", asked("a", 1)) == ""


async def test_an_interrupted_turn_leaves_nobody_waiting(api: ApiDouble, start: Start) -> None:
    await api.put("resourcequotas", quota(10))
    async with start() as quotas:
        await quotas.reserve("team", asked("before", 1))
        api.gate.clear()
        first, second, third = (
            asyncio.create_task(quotas.reserve("team", asked(uid, 1))) for uid in "abc"
        )
        await api.called(f"PUT {LEDGER}", 1)
        first.cancel()
        await api.called(f"PUT {LEDGER}", 2)  # the turn of the second, which takes the third along

        second.cancel()

        with pytest.raises(UnreachableError, match="interrupted"):
            await third
        api.gate.set()
        assert await quotas.reserve("team", asked("after", 1)) == ""


async def test_a_claim_of_an_unknown_form_stops_nothing(
    api: ApiDouble, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await api.put("resourcequotas", quota(10))
    strange = claim("strange", 1)
    strange["spec"]["devices"]["requests"] = {"of": "tomorrow"}
    await api.put("resourceclaims", strange)
    async with start() as quotas:
        assert await quotas.reserve("team", asked("a", 10)) == ""
        assert "claim-strange" in caplog.text


async def test_a_quota_that_is_lowered_or_goes_counts_at_once(api: ApiDouble, start: Start) -> None:
    await api.put("resourcequotas", quota(10))
    async with start() as quotas:
        assert await quotas.reserve("team", asked("a", 8)) == ""
        await api.put("resourcequotas", quota(4))
        await until(lambda: [f.limit.hard for f in quotas.figures()] == [4])
        assert "limited: limits.nvidia.com/gpumem=4 MiB" in quotas.refusal("team", {MEMORY: 1})
        await api.remove("resourcequotas", "team", "gpus")
        await until(lambda: not quotas.of("team"))
        assert await quotas.reserve("team", asked("b", 999)) == ""
