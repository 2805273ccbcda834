"""A measurement leaves nothing behind, least of all on a cluster that does not stand it."""

import pytest

from hami_dra.kube.errors import ApiError
from hami_dra.kube.session import Session
from hami_dra.migration.names import DRIVER
from hami_dra.preflight.measure import measure
from tests.hami_dra.kube.api_double import ApiDouble

NAMESPACES = "/api/v1/namespaces"


async def test_pods_that_cannot_be_deleted_in_time_do_not_save_their_namespace(
    api: ApiDouble, session: Session
) -> None:
    left = {"items": [{"metadata": {"name": "left"}}], "metadata": {}}
    api.fail(f"GET {NAMESPACES}", 200, left)
    api.fail(f"DELETE {NAMESPACES}/left/pods", 200, b"no answer")
    api.fail(f"POST {NAMESPACES}", 403)

    with pytest.raises(ApiError):
        await measure(session, DRIVER)

    assert api.count(f"DELETE {NAMESPACES}/left") == 1
