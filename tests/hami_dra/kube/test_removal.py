"""Deletes that race with admissions: nothing that is needed stays deleted."""

import asyncio
from contextlib import suppress

import pytest

from hami_dra.kube.removal import Effect
from hami_dra.kube.session import Session
from hami_dra.kube.unused import UNUSED_SINCE
from tests.hami_dra.kube.api_double import API, ApiDouble
from tests.hami_dra.kube.test_sweeper import (
    CREATE,
    DELETE,
    KIND,
    NAME,
    OLD,
    ONE,
    PODS,
    is_there,
    sweeper,
    user,
)
from tests.hami_dra.kube.test_unused import template


async def test_a_pod_admitted_between_look_and_delete_gets_its_template_back(
    api: ApiDouble, session: Session
) -> None:
    """The race with a replica that admits from its cache."""
    await api.put(KIND, template(marked=OLD))
    api.before[DELETE] = lambda: api.put("pods", user())
    found = sweeper(session)

    await found.sweep()

    assert found.effects == {Effect.SWEPT: 1, Effect.PUT_BACK: 1}
    back = api.found(KIND, "team", NAME)
    assert back["spec"] == template()["spec"]
    assert UNUSED_SINCE not in back["metadata"].get("annotations", {})
    assert api.calls.index(CREATE) - api.calls.index(DELETE) == 2  # a look, and at once


async def test_a_pod_that_is_stored_late_is_seen_by_a_later_look(
    api: ApiDouble, session: Session
) -> None:
    """Its admission began before the delete and ended after the first look."""
    await api.put(KIND, template(marked=OLD))
    last = f"GET {API}/namespaces/team/resourceclaims"

    async def meddle() -> None:
        api.before[last] = lambda: api.put("pods", user())

    api.before[DELETE] = meddle
    found = sweeper(session)

    await found.sweep()

    assert found.effects == {Effect.SWEPT: 1, Effect.PUT_BACK: 1}
    assert is_there(api)


async def test_a_template_that_was_made_anew_meanwhile_is_not_ours_to_put_back(
    api: ApiDouble, session: Session
) -> None:
    await api.put(KIND, template(marked=OLD))

    async def meddle() -> None:
        await api.put("pods", user())
        api.before[PODS] = lambda: api.put(KIND, template())

    api.before[DELETE] = meddle
    found = sweeper(session)

    await found.sweep()

    assert found.effects == {Effect.SWEPT: 1}
    assert is_there(api)


@pytest.mark.parametrize("call", [f"GET {ONE}", DELETE])
async def test_what_changed_after_the_look_is_spared(
    api: ApiDouble, session: Session, call: str
) -> None:
    """A person's touch, or another replica's, between our look and our delete."""
    await api.put(KIND, template(marked=OLD))
    api.before[call] = lambda: api.put(KIND, template(labels={}))
    found = sweeper(session)

    await found.sweep()

    assert found.effects == {Effect.OVERTAKEN: 1}
    assert is_there(api)


async def test_a_template_of_the_same_name_but_made_anew_is_spared(
    api: ApiDouble, session: Session
) -> None:
    await api.put(KIND, template(marked=OLD))
    api.before[f"GET {ONE}"] = lambda: api.put(KIND, template(marked=OLD, uid="another"))

    await sweeper(session).sweep()

    assert is_there(api)


async def test_a_delete_without_an_answer_is_looked_after(api: ApiDouble, session: Session) -> None:
    """It may have happened; a pod that needs the template must not wait for ever."""
    await api.put(KIND, template(marked=OLD))

    async def meddle() -> None:
        await api.remove(KIND, "team", NAME)
        await api.put("pods", user())
        api.fail(DELETE, 200, b"{")

    api.before[DELETE] = meddle
    found = sweeper(session)

    await found.sweep()

    assert is_there(api)
    assert found.effects == {Effect.FAILED: 1, Effect.PUT_BACK: 1}


async def test_a_look_that_fails_is_made_again(api: ApiDouble, session: Session) -> None:
    await api.put(KIND, template(marked=OLD))

    async def meddle() -> None:
        await api.put("pods", user())
        api.fail(PODS, 500)

    api.before[DELETE] = meddle
    found = sweeper(session)

    await found.sweep()

    assert is_there(api)
    assert found.effects == {Effect.SWEPT: 1, Effect.FAILED: 1, Effect.PUT_BACK: 1}


async def test_a_shutdown_after_a_delete_waits_for_the_look(
    api: ApiDouble, session: Session
) -> None:
    await api.put(KIND, template(marked=OLD))
    deleting, proceed = asyncio.Event(), asyncio.Event()

    async def meddle() -> None:
        deleting.set()
        await proceed.wait()
        await api.put("pods", user())

    api.before[DELETE] = meddle
    task = asyncio.create_task(sweeper(session).sweep())
    await deleting.wait()
    task.cancel()
    proceed.set()
    with suppress(asyncio.CancelledError):
        await task

    assert task.cancelled()
    assert is_there(api)
