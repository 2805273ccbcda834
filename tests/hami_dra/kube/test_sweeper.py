"""The sweeper on the wire: marks, deletes with preconditions, looks again, puts back."""

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from hami_dra.kube.removal import Effect
from hami_dra.kube.session import Session
from hami_dra.kube.sweeper import Sweeper
from hami_dra.kube.unused import UNUSED_SINCE, WORKLOADS, Source
from hami_dra.migration import Json
from tests.hami_dra.kube.api_double import API, TEMPLATES, ApiDouble
from tests.hami_dra.kube.test_unused import template, workload

KIND = "resourceclaimtemplates"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OLD = "2026-11-01T00:00:00Z"
NAME = template()["metadata"]["name"]
ONE = f"{API}/namespaces/team/{KIND}/{NAME}"
DELETE = f"DELETE {ONE}"
CREATE = f"POST {API}/namespaces/team/{KIND}"
PODS = "GET /api/v1/namespaces/team/pods"


def sweeper(session: Session, *, looks: int = 1, now: datetime = NOW) -> Sweeper:
    return Sweeper(session, pause_s=0, later_looks_s=[0.0] * looks, clock=lambda: now)


def user(source: Source = WORKLOADS[0], name: str = NAME) -> Json:
    entries = [{"name": "gpu", "resourceClaimTemplateName": name}]
    item = workload(source, {"resourceClaims": entries})
    item["metadata"]["namespace"] = "team"
    return item


def is_there(api: ApiDouble) -> bool:
    try:
        api.found(KIND, "team", NAME)
    except KeyError:
        return False
    return True


async def test_unused_is_marked_then_swept(api: ApiDouble, session: Session) -> None:
    await api.put(KIND, template())
    first = sweeper(session)

    await first.sweep()
    assert api.found(KIND, "team", NAME)["metadata"]["annotations"] == {
        UNUSED_SINCE: "2026-11-30T12:00:00Z"
    }
    later = sweeper(session, now=NOW + timedelta(days=7))  # another replica, or this one restarted
    await later.sweep()

    assert first.effects == {Effect.MARKED: 1}
    assert later.effects == {Effect.SWEPT: 1}
    assert later.finished == NOW + timedelta(days=7)
    assert not is_there(api)


@pytest.mark.parametrize("source", WORKLOADS, ids=lambda source: source.kind)
async def test_a_workload_of_any_kind_keeps_a_template(
    api: ApiDouble, session: Session, source: Source
) -> None:
    await api.put(KIND, template(marked=OLD))
    await api.put(source.resource, user(source))
    found = sweeper(session)

    await found.sweep()

    assert found.effects == {Effect.UNMARKED: 1}
    assert api.found(KIND, "team", NAME)["metadata"]["annotations"] == {}


async def test_a_claim_that_is_tied_to_a_template_keeps_it(
    api: ApiDouble, session: Session
) -> None:
    await api.put(KIND, template(marked=OLD))
    tied = {"name": "c", "namespace": "team", "annotations": {"made-from": NAME}}
    await api.put("resourceclaims", {"metadata": tied, "spec": {}})

    await sweeper(session).sweep()

    assert is_there(api)


async def test_a_users_namespace_counts(api: ApiDouble, session: Session) -> None:
    """Names hold hashes, so other namespaces have templates of the same name."""
    await api.put(KIND, template(marked=OLD))
    elsewhere = user()
    elsewhere["metadata"]["namespace"] = "other"
    await api.put("pods", elsewhere)

    await sweeper(session).sweep()

    assert not is_there(api)


async def test_templates_that_are_all_in_use_cost_one_page_of_pods(
    api: ApiDouble, session: Session
) -> None:
    await api.put(KIND, template())
    await api.put("pods", user())

    await sweeper(session).sweep()

    assert api.calls == [f"GET {TEMPLATES}", PODS]


async def test_pods_are_read_page_by_page(api: ApiDouble, session: Session) -> None:
    await api.put(KIND, template(marked=OLD))
    for number in range(1001):
        item = user(name="another" if number < 1000 else NAME)
        item["metadata"]["name"] = f"p{number:04}"
        await api.put("pods", item)

    await sweeper(session).sweep()

    assert is_there(api)
    assert api.count(PODS) == 3


async def test_somebody_elses_templates_cost_no_search(api: ApiDouble, session: Session) -> None:
    await api.put(KIND, template(managedFields=[{"manager": "kubectl-client-side-apply"}]))

    await sweeper(session).sweep()

    assert api.calls == [f"GET {TEMPLATES}"]


async def test_two_replicas_at_once_do_it_once(api: ApiDouble, session: Session) -> None:
    await api.put(KIND, template(marked=OLD))
    replicas = [sweeper(session), sweeper(session)]

    await asyncio.gather(*(each.sweep() for each in replicas))

    effects = replicas[0].effects + replicas[1].effects
    assert effects[Effect.SWEPT] == 1
    assert effects[Effect.PUT_BACK] == effects[Effect.FAILED] == 0
    assert not is_there(api)


async def test_a_mark_that_another_replica_made_meanwhile_stands(
    api: ApiDouble, session: Session
) -> None:
    await api.put(KIND, template())
    api.before[f"PATCH {ONE}"] = lambda: api.put(KIND, template(marked="2026-11-30T11:59:59Z"))
    found = sweeper(session)

    await found.sweep()

    assert found.effects == {Effect.OVERTAKEN: 1}
    assert api.found(KIND, "team", NAME)["metadata"]["annotations"] == {
        UNUSED_SINCE: "2026-11-30T11:59:59Z"
    }


@pytest.mark.parametrize("source", WORKLOADS, ids=lambda source: source.kind)
async def test_what_cannot_be_seen_may_be_a_user(
    api: ApiDouble, session: Session, source: Source
) -> None:
    """A role that lacks a verb must never end in a delete."""
    await api.put(KIND, template(marked=OLD))
    api.fail(f"GET {source.path('team')}", 403)
    found = sweeper(session)

    await found.sweep()

    assert is_there(api)
    assert found.effects == {Effect.FAILED: 1}
    assert "could not sweep templates of team: 403" in found.trouble
    assert found.finished is None
    await found.sweep()
    assert found.trouble == ""
    assert not is_there(api)


async def test_trouble_with_one_namespace_does_not_spare_the_others(
    api: ApiDouble, session: Session
) -> None:
    await api.put(KIND, template(marked=OLD))
    await api.put(KIND, template(marked=OLD, namespace="a"))
    api.fail("GET /api/v1/namespaces/a/pods", 500)

    await sweeper(session).sweep()

    assert not is_there(api)
    assert api.found(KIND, "a", NAME)


async def test_without_a_list_of_templates_nothing_happens(
    api: ApiDouble, session: Session
) -> None:
    api.fail(f"GET {TEMPLATES}", 403, json.dumps({"kind": "Status"}).encode())
    found = sweeper(session)

    await found.sweep()

    assert "could not list templates: 403" in found.trouble
    assert found.finished is None


async def test_passes_come_again_and_replicas_do_not_come_together(
    api: ApiDouble, session: Session
) -> None:
    asked: list[float] = []

    def chance() -> float:
        asked.append(0.5)
        return 0.5

    found = Sweeper(session, period_s=0.001, pause_s=0, chance=chance)
    task = asyncio.create_task(found.run())
    await api.called(f"GET {TEMPLATES}", 3)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert len(asked) >= 3


async def test_an_api_server_that_is_away_is_trouble_and_not_the_end(
    api: ApiDouble, session: Session
) -> None:
    api.fail(f"GET {TEMPLATES}", 200, b"[]")
    found = sweeper(session)

    await found.sweep()

    assert "not an object" in found.trouble


async def test_a_pass_that_breaks_is_told_and_is_not_the_last(
    api: ApiDouble, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """Admissions must never end because of a sweep."""
    api.fail(f"GET {TEMPLATES}", 200, {"items": [{}]})
    found = Sweeper(session, period_s=0.001, pause_s=0)
    task = asyncio.create_task(found.run())
    await api.called(f"GET {TEMPLATES}", 3)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert "a pass of the sweeper failed" in caplog.text
    assert found.trouble == ""
