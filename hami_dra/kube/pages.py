"""Read a collection page by page, so that a hundred thousand objects never fill the memory."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final

from hami_dra.kube.errors import GoneError
from hami_dra.kube.session import JSON, Session
from hami_dra.migration.json import Json

_PAGE: Final = "500"
_METADATA: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"


async def pages(
    session: Session,
    path: str,
    *,
    query: Mapping[str, str] | None = None,
    metadata_only: bool = False,
) -> AsyncGenerator[list[Json], None]:
    """Yield the items of a collection, a page at a time.

    Who takes longer than the API server remembers gets the rest as it is by then; what is there all
    the time is among it.

    Args:
        session: the API server.
        path: the collection.
        query: selectors, as query parameters.
        metadata_only: whether the server may leave out everything but the metadata.

    Raises:
        ApiError: if the API server refuses; NotFoundError where no such kind is served.
        UnreachableError: if it does not answer.
    """
    asked = {**(query or {}), "limit": _PAGE}
    while True:
        try:
            page = await session.request(
                "GET", path, query=asked, accept=_METADATA if metadata_only else JSON
            )
        except GoneError as gone:
            if gone.resume in {"", asked.get("continue")}:
                raise
            asked = {**asked, "continue": gone.resume}
            continue
        yield page.get("items") or []
        token = (page.get("metadata") or {}).get("continue")
        if not token:
            return
        asked = {**asked, "continue": token}
