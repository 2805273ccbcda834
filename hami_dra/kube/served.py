"""Which kinds an API server has, and where: by its own word."""

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import quote

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
    """

    api_version: str
    kind: str
    resource: str
    is_namespaced: bool = True

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
        for each in (await session.get(f"/apis/{version}")).get("resources") or ():
            # Names with a slash are parts of objects, such as deployments/scale.
            if "/" not in each["name"] and "list" in each["verbs"]:
                served = Served(version, each["kind"], each["name"], each["namespaced"])
                found.setdefault((served.group, served.resource), served)
    return list(found.values())


def _versions(group: Json) -> list[str]:
    """Return the versions of a group, the preferred one first; not every kind is in that one."""
    every = [each["groupVersion"] for each in group["versions"]]
    return list(dict.fromkeys([group["preferredVersion"]["groupVersion"], *every]))
