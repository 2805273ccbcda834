"""Who holds cards: pods that could not end without the agent of their node."""

from hami_dra.kube.errors import NotFoundError
from hami_dra.kube.pages import pages
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER

_CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


async def holders(session: Session) -> list[str]:
    """Name the holders of claims on cards of our driver, as namespace/name."""
    found: set[str] = set()
    try:
        async for page in pages(session, _CLAIMS):
            for claim in page:
                found.update(_of_claim(claim))
    except NotFoundError:  # nobody can hold what is not served
        return []
    return sorted(found)


def _of_claim(claim: Json) -> list[str]:
    """Name the holders of one claim; none if it has no card of ours."""
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    if not any(each["driver"] == DRIVER for each in results):
        return []
    namespace = claim["metadata"]["namespace"]
    return [f"{namespace}/{each['name']}" for each in status.get("reservedFor") or ()]
