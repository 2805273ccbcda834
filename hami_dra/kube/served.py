"""Which kinds an API server has, and where: by its own word."""

from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import quote

from hami_dra.kube.errors import NotFoundError
from hami_dra.kube.session import Session
from hami_dra.migration.json import Json


@dataclass(frozen=True, slots=True)
class Served:
    """A kind that an API server has.

    Attributes:
        api_version: group and version, such as `apps/v1`; `v1` for the core.
        kind: as objects name it.
        resource: the collection, such as `deployments`.
        is_namespaced: whether its objects are in namespaces.
        is_listed: whether its objects can be listed.
    """

    api_version: str
    kind: str
    resource: str
    is_namespaced: bool = True
    is_listed: bool = True

    @property
    def group(self) -> str:
        """Return its API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def title(self) -> str:
        """Return the collection as kubectl names it, such as `deployments.apps`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def path(self, namespace: str = "") -> str:
        """Return the collection's path, of one namespace or of all."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        within = (
            f"/namespaces/{quote(namespace, safe='')}" if namespace and self.is_namespaced else ""
        )
        return f"{root}{within}/{self.resource}"


async def served_in(session: Session, groups: Collection[str]) -> list[Served]:
    """Return the kinds of these groups, each in the version that the server prefers for it.

    Raises:
        ApiError: if the API server refuses.
        UnreachableError: if it does not answer.
    """
    listed = (await session.get("/apis")).get("groups") or ()
    found: dict[tuple[str, str], Served] = {}
    for version in (v for group in listed if group["name"] in groups for v in _versions(group)):
        for served in await _kinds(session, version):
            if served.is_listed:
                found.setdefault((served.group, served.resource), served)
    return list(found.values())


class UnknownKindError(Exception):
    """The API server serves no such kind; the message says which."""


@dataclass(slots=True)
class Discovery:
    """Knows where objects are.

    Attributes:
        session: the API server, which is asked once for each group and version.
    """

    session: Session
    _kinds: dict[str, dict[str, Served]] = field(default_factory=dict)

    async def collection(self, item: Json, namespace: str) -> str:
        """Return the path of the collection that an object belongs to.

        Args:
            item: the object.
            namespace: where it is, if its kind is in namespaces.

        Raises:
            UnknownKindError: if there is no such kind there.
            ApiError: if the API server refuses.
            UnreachableError: if it does not answer.
        """
        version, kind = str(item.get("apiVersion", "")), str(item.get("kind", ""))
        if version not in self._kinds:
            self._kinds[version] = await self._ask(version)
        if (served := self._kinds[version].get(kind)) is None:
            raise UnknownKindError(f"the API server serves no {kind} of {version}")
        return served.path(namespace)

    async def path(self, item: Json) -> str:
        """Return the path of an object that has a name; raises what `collection` does."""
        metadata = item["metadata"]
        return f"{await self.collection(item, metadata.get('namespace', ''))}/{metadata['name']}"

    async def _ask(self, version: str) -> dict[str, Served]:
        try:
            return {each.kind: each for each in await _kinds(self.session, version)}
        except NotFoundError:
            return {}


async def _kinds(session: Session, version: str) -> list[Served]:
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return [
        Served(version, each["kind"], each["name"], each["namespaced"], "list" in each["verbs"])
        for each in (await session.get(root)).get("resources") or ()
        if "/" not in each["name"]  # parts of objects have one, such as deployments/scale
    ]


def _versions(group: Json) -> list[str]:
    """Return the versions of a group, the preferred one first; not every kind is in that one."""
    every = [each["groupVersion"] for each in group["versions"]]
    return list(dict.fromkeys([group["preferredVersion"]["groupVersion"], *every]))
