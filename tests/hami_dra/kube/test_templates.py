"""Templates exist before their pods do, at the price of as few API calls as can be."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
import pytest_asyncio

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.errors import ApiError, NotFoundError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.kube.templates import (
    PATIENCE_S,
    ClusterTemplates,
    Failure,
    MemoryTemplates,
    Outcome,
    Stored,
    TemplateConflict,
    TemplateStore,
)
from hami_dra.migration import Cards, Json, Policy, Template, migrate
from hami_dra.migration.registration import webhook_configuration
from tests.hami_dra.kube.api_double import API, TEMPLATES, ApiDouble, status_object

KIND = "resourceclaimtemplates"
CREATE = f"POST {API}/namespaces/team/{KIND}"
WATCH = f"WATCH {TEMPLATES}"


def a_template(memory: str = "8192") -> Template:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": memory}
    pod: Json = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
    return migrate(pod, Policy(), Cards()).templates[0]


def as_stored(template: Template) -> Json:
    """Return the template as the server writes it: 8192Mi has become 8Gi."""
    text = json.dumps(template.manifest("team"))
    stored: Json = json.loads(text.replace('"8192Mi"', '"8Gi"'))
    return stored


@pytest_asyncio.fixture
async def templates(
    api: ApiDouble, session: Session, backoff: Callable[[], Backoff]
) -> AsyncIterator[ClusterTemplates]:
    # What an answer may take is no matter here, and a machine may stand still for seconds.
    store = ClusterTemplates(session, backoff=backoff(), patience_s=60)
    task = asyncio.create_task(store.run())
    await asyncio.wait_for(store.synced(), timeout=60)
    await api.called(WATCH, 1)
    yield store
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_first_sight_costs_one_create_and_the_next_nothing(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    assert await templates.ensure("team", a_template()) == Outcome.CREATED
    calls = len(api.calls)

    assert await templates.ensure("team", a_template()) == Outcome.KNOWN
    assert len(api.calls) == calls
    assert api.found(KIND, "team", a_template().name)["spec"] == a_template().spec


async def test_a_template_seen_at_the_start_costs_nothing(
    api: ApiDouble, session: Session, backoff: Callable[[], Backoff]
) -> None:
    await api.put(KIND, as_stored(a_template()))
    store = ClusterTemplates(session, backoff=backoff())
    task = asyncio.create_task(store.run())
    await asyncio.wait_for(store.synced(), timeout=60)

    assert await store.ensure("team", a_template()) == Outcome.KNOWN
    assert api.count(CREATE) == 0
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_sixty_four_at_once_share_one_create(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    api.gate.clear()
    waiting = [asyncio.create_task(templates.ensure("team", a_template())) for _ in range(64)]
    await api.called(CREATE, 1)
    api.gate.set()

    outcomes = await asyncio.gather(*waiting)

    assert api.count(CREATE) == 1
    assert outcomes.count(Outcome.CREATED) == 1
    assert outcomes.count(Outcome.JOINED) == 63


async def test_sixty_four_different_ones_go_out_in_parallel(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    api.gate.clear()
    waiting = [
        asyncio.create_task(templates.ensure("team", a_template(str(1000 + number))))
        for number in range(64)
    ]
    await api.called(CREATE, 64)  # all arrived although none was answered
    api.gate.set()

    assert set(await asyncio.gather(*waiting)) == {Outcome.CREATED}


async def test_a_cancelled_leader_does_not_fail_the_followers(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    api.gate.clear()
    leader = asyncio.create_task(templates.ensure("team", a_template()))
    await api.called(CREATE, 1)
    follower = asyncio.create_task(templates.ensure("team", a_template()))
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    api.gate.set()

    assert await follower == Outcome.JOINED
    assert api.count(CREATE) == 1


async def test_a_failure_that_nobody_waits_for_is_silent_and_tried_again(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    api.gate.clear()
    api.namespaces_missing.add("team")
    leader = asyncio.create_task(templates.ensure("team", a_template()))
    await api.called(CREATE, 1)
    leader.cancel()
    api.gate.set()
    with pytest.raises(NotFoundError):  # joins the flight of the cancelled one
        await templates.ensure("team", a_template())
    api.namespaces_missing.clear()

    assert await templates.ensure("team", a_template()) == Outcome.CREATED


async def test_a_taken_name_with_the_same_meaning_is_success(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    item = as_stored(a_template())
    del item["metadata"]["labels"]  # outside our watch
    await api.put(KIND, item)

    assert await templates.ensure("team", a_template()) == Outcome.EXISTED


@pytest.mark.parametrize("labelled", [True, False], ids=["cached", "read"])
async def test_a_taken_name_with_another_meaning_is_refused_by_name(
    api: ApiDouble, templates: ClusterTemplates, *, labelled: bool
) -> None:
    item = a_template("1").manifest("team")
    item["metadata"]["name"] = a_template().name
    if not labelled:
        del item["metadata"]["labels"]
    await api.put(KIND, item)

    with pytest.raises(TemplateConflict, match=f"team/{a_template().name}.*delete"):
        await templates.ensure("team", a_template())
    assert templates.failures == {Failure.CONFLICT: 1}


async def test_a_template_deleted_later_is_created_again(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    await templates.ensure("team", a_template())
    await api.remove(KIND, "team", a_template().name)

    async with asyncio.timeout(60):
        while await templates.ensure("team", a_template()) == Outcome.KNOWN:  # noqa: ASYNC110 - the store has no event for it
            await asyncio.sleep(0)

    assert api.count(CREATE) == 2


async def test_a_template_that_vanishes_between_create_and_read_is_created(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    api.fail(CREATE, 409)

    assert await templates.ensure("team", a_template()) == Outcome.CREATED
    assert api.count(CREATE) == 2


async def test_a_name_that_is_never_free_ends_in_an_error(
    api: ApiDouble, templates: ClusterTemplates
) -> None:
    for _ in range(3):
        api.fail(CREATE, 409)

    with pytest.raises(NotFoundError):
        await templates.ensure("team", a_template())


async def test_trouble_surfaces_and_passes(api: ApiDouble, templates: ClusterTemplates) -> None:
    api.fail(CREATE, 403)
    api.fail(CREATE, 201, b"{")

    with pytest.raises(ApiError, match="403"):
        await templates.ensure("team", a_template())
    assert await templates.ensure("team", a_template()) == Outcome.CREATED
    assert templates.failures == {Failure.ERROR: 1}
    assert api.count(CREATE) == 3


async def test_memory_keeps_one_object_a_name() -> None:
    store = MemoryTemplates()
    seam: TemplateStore = store

    assert await seam.ensure("team", a_template()) == Outcome.CREATED
    assert await seam.ensure("team", a_template()) == Outcome.KNOWN
    assert list(store.objects) == [("team", a_template().name)]

    store.objects[("team", a_template().name)] = Stored({"spec": {}})
    with pytest.raises(TemplateConflict):
        await seam.ensure("team", a_template())


@pytest.mark.parametrize("status", [429, 500, 503, 504])
async def test_a_passing_failure_of_the_api_server_is_tried_again(
    api: ApiDouble, templates: ClusterTemplates, status: int
) -> None:
    api.fail(CREATE, status, status_object(status, "Fault", "etcdserver: too many requests"))
    api.fail(CREATE, status, b"<html>a proxy without manners</html>")

    assert await templates.ensure("team", a_template()) == Outcome.CREATED
    assert api.count(CREATE) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
async def test_a_refusal_is_not_tried_again(
    api: ApiDouble, templates: ClusterTemplates, status: int
) -> None:
    api.fail(CREATE, status)

    with pytest.raises(ApiError) as refused:
        await templates.ensure("team", a_template())

    assert refused.value.status == status
    assert api.count(CREATE) == 1


@pytest.mark.parametrize("status", [429, 500])
async def test_a_lasting_failure_is_passed_on_after_a_bounded_number_of_tries(
    api: ApiDouble, session: Session, status: int
) -> None:
    store = ClusterTemplates(session, patience_s=2)
    for _ in range(100):
        api.fail(CREATE, status, status_object(status, "Fault", "database space exceeded"))

    with pytest.raises(ApiError, match="database space exceeded"):
        await store.ensure("team", a_template())

    assert api.count(CREATE) <= 20


async def test_what_a_server_said_before_it_fell_silent_is_passed_on(
    api: ApiDouble, session: Session
) -> None:
    api.gate.clear()
    api.fail(CREATE, 500, status_object(500, "Fault", "database space exceeded"))

    with pytest.raises(ApiError, match="database space exceeded"):
        await ClusterTemplates(session, patience_s=2).ensure("team", a_template())

    assert api.count(CREATE) == 2


async def test_a_server_that_asks_for_more_patience_than_there_is_gets_one_call(
    api: ApiDouble, session: Session
) -> None:
    body = status_object(429, "TooManyRequests", "overloaded")
    body["details"]["retryAfterSeconds"] = 60
    api.fail(CREATE, 429, body)

    with pytest.raises(ApiError, match="overloaded"):
        await ClusterTemplates(session).ensure("team", a_template())

    assert api.count(CREATE) == 1


async def test_a_server_that_does_not_answer_is_not_waited_for_longer_than_a_review_may_take(
    api: ApiDouble, session: Session
) -> None:
    api.gate.clear()
    store = ClusterTemplates(session, patience_s=2)
    waiting = [asyncio.create_task(store.ensure("team", a_template())) for _ in range(3)]

    for each in waiting:
        with pytest.raises(UnreachableError, match="did not answer within 2 s"):
            await each
    api.gate.set()
    assert await store.ensure("team", a_template()) in Outcome


def test_the_patience_ends_before_the_api_servers() -> None:
    [registered] = webhook_configuration(Policy(), {})["webhooks"]

    assert registered["timeoutSeconds"] > PATIENCE_S
