"""Collections that are read page by page, also slowly."""

import pytest

from hami_dra.kube.errors import GoneError
from hami_dra.kube.pages import pages
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from tests.hami_dra.kube.api_double import ApiDouble, status_object

PATH = "/api/v1/pods"
CALL = f"GET {PATH}"


def pod(name: str) -> Json:
    return {"metadata": {"name": name, "namespace": "team"}}


def gone(resume: str = "") -> Json:
    """Write what an API server says of a token that it has forgotten."""
    metadata = {"continue": resume} if resume else {}
    return {**status_object(410, "Expired", "too old"), "metadata": metadata}


async def names(session: Session) -> list[str]:
    return [item["metadata"]["name"] async for page in pages(session, PATH) for item in page]


async def test_a_list_that_took_too_long_goes_on_where_it_was(
    api: ApiDouble, session: Session
) -> None:
    for name in ("a", "b", "c"):
        await api.put("pods", pod(name))
    api.fail(CALL, 200, {"metadata": {"continue": "forgotten"}, "items": [pod("a")]})
    api.fail(CALL, 410, gone(resume="1"))

    assert await names(session) == ["a", "b", "c"]


@pytest.mark.parametrize("resume", ["", "again"])
async def test_a_list_that_cannot_go_on_is_an_error(
    api: ApiDouble, session: Session, resume: str
) -> None:
    api.fail(CALL, 200, {"metadata": {"continue": "again"}, "items": []})
    api.fail(CALL, 410, gone(resume))

    with pytest.raises(GoneError):
        await names(session)
