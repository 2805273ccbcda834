"""The version is learned through failures and learned again."""

import asyncio
from contextlib import suppress

from hami_dra.kube.backoff import Backoff
from hami_dra.kube.session import Session
from hami_dra.kube.version import ServerVersion
from tests.hami_dra.kube.api_double import ApiDouble


async def test_an_upgrade_is_noticed(api: ApiDouble, session: Session) -> None:
    api.fail("GET /version", 503)
    api.fail("GET /version", 200, {"major": "1", "minor": "35"})
    version = ServerVersion(session, period_s=0.001, backoff=Backoff(initial_s=0.001))
    assert version.current is None

    task = asyncio.create_task(version.run())
    await api.called("GET /version", 4)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    assert version.current == (1, 37)
