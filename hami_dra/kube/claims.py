"""Read ResourceClaims."""

from typing import Final

from hami_dra.kube.errors import NotFoundError
from hami_dra.kube.session import Session
from hami_dra.migration.json import Json

_API: Final = "/apis/resource.k8s.io/v1"


async def find_claim(session: Session, namespace: str, name: str, uid: str) -> Json | None:
    """Return a claim, or None if it is gone or another one has its name.

    Raises:
        ApiError: if the server refuses.
        UnreachableError: if it does not answer.
    """
    try:
        claim = await session.get(f"{_API}/namespaces/{namespace}/resourceclaims/{name}")
    except NotFoundError:
        return None
    return claim if claim["metadata"].get("uid") == uid else None
