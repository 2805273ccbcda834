"""A claim is known by its UID: another one may have its name."""

from hami_dra.kube.claims import find_claim
from hami_dra.kube.session import Session
from tests.hami_dra.kube.api_double import ApiDouble
from tests.hami_dra.node.claims import claim, result


async def test_a_claim_that_took_the_name_of_another_is_not_that_one(
    api: ApiDouble, session: Session
) -> None:
    wanted = claim(result())
    uid = wanted["metadata"]["uid"]
    await api.put("resourceclaims", wanted)

    found = await find_claim(session, "ns", "c", uid)

    assert found is not None
    assert found["status"] == wanted["status"]
    assert await find_claim(session, "ns", "c", "another-uid") is None
    assert await find_claim(session, "ns", "other", uid) is None
