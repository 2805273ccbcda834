"""Read collections of a cluster page by page; what may not be read is noted, and hides no other."""

from collections.abc import Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field

from hami_dra.cli.auditing.findings import Unread
from hami_dra.kube.errors import ApiError, NotFoundError
from hami_dra.kube.pages import pages
from hami_dra.kube.served import Served, served_in
from hami_dra.kube.session import Query, Session
from hami_dra.migration import Json
from hami_dra.preflight.evidence import Hidden


@dataclass(slots=True)
class Reader:
    """Reads one collection after the other.

    Attributes:
        session: the API server.
        namespace: the only one to look at; empty for all.
        progress: told what is being read, and how many objects of it were.
        unread: what could not be read so far.
    """

    session: Session
    namespace: str
    progress: Callable[[str, int], None]
    unread: list[Unread] = field(default_factory=list)

    async def each(
        self, served: Served, take: Callable[[Json], None], *, query: Query | None = None
    ) -> bool:
        """Read a collection, one object at a time; tell whether all of it could be read.

        Raises:
            UnreachableError: if the API server does not answer.
        """
        count = 0
        self.progress(served.title, count)
        listing = pages(self.session, served.path(self.namespace), query=query)
        try:
            async with aclosing(listing):
                async for items in listing:
                    for item in items:
                        # Members of a list leave out what is the same for all of them.
                        take({"apiVersion": served.api_version, "kind": served.kind, **item})
                    count += len(items)
                    self.progress(served.title, count)
        except ApiError as error:
            self.unread.append(Unread(served.title, str(error)))
            return False
        return True

    async def every(self, served: Served, *, query: Query | None = None) -> list[Json]:
        """Read a small collection as a whole; what could not be read is missing and noted."""
        found: list[Json] = []
        await self.each(served, found.append, query=query)
        return found

    async def kinds(self, groups: Collection[str]) -> list[Served]:
        """Return which kinds of these groups there are."""
        self.progress("the kinds that are served", 0)
        try:
            return await served_in(self.session, groups)
        except ApiError as error:
            self.unread.append(Unread("the kinds that are served", str(error)))
            return []

    async def found(self, what: str, path: str) -> Json | Hidden | None:
        """Read one object; None when it is not there, and the reason when it may not be read."""
        try:
            return await self.session.get(path)
        except NotFoundError:
            return None
        except ApiError as error:
            self.unread.append(Unread(what, str(error)))
            return Hidden(str(error))
