"""Where objects of a kind are on an API server, by its own word: no table can be out of date."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hami_dra.kube.errors import NotFoundError
from hami_dra.kube.session import Session
from hami_dra.migration import Json


class UnknownKindError(Exception):
    """The API server serves no such kind; the message says which."""


@dataclass(slots=True)
class Discovery:
    """Knows the paths of objects.

    Attributes:
        session: the API server, which is asked once for each group.
    """

    session: Session
    _kinds: dict[str, Mapping[str, Json]] = field(default_factory=dict)

    async def path(self, item: Json) -> str:
        """Return the path of an object.

        Raises:
            UnknownKindError: if there is no such kind there.
        """
        version, kind = item["apiVersion"], item["kind"]
        if version not in self._kinds:
            self._kinds[version] = await self._ask(version)
        if (served := self._kinds[version].get(kind)) is None:
            raise UnknownKindError(f"the API server serves no {kind} of {version}")
        metadata = item["metadata"]
        within = f"/namespaces/{metadata['namespace']}" if served["namespaced"] else ""
        return f"{_root(version)}{within}/{served['name']}/{metadata['name']}"

    async def _ask(self, version: str) -> Mapping[str, Json]:
        try:
            found = await self.session.get(_root(version))
        except NotFoundError:
            return {}
        # Names with a slash are parts of objects, such as deployments/scale.
        return {each["kind"]: each for each in found["resources"] if "/" not in each["name"]}


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"
