"""Where the containers of a pod stand, so that messages and edits name the same field."""

from dataclasses import dataclass
from typing import Any, Final

from hami_dra.migration.json import Json, as_array, as_object
from hami_dra.migration.notice import RejectedPod

_INIT: Final = "initContainers"

# Init containers first, as legacy visits them. Ephemeral containers cannot carry resources.
_LISTS: Final = (_INIT, "containers")


@dataclass(frozen=True, slots=True)
class Place:
    """A container and where it stands.

    Attributes:
        kind: the list in the pod's spec.
        index: its position there.
        container: the container as it was found.
        siblings: the list as it was found.
        path: the container's path in the pod.
    """

    kind: str
    index: int
    container: Json
    siblings: list[Any]
    path: str

    @property
    def name(self) -> str:
        """Return the container's name.

        Raises:
            RejectedPod: if it has none.
        """
        name = self.container.get("name")
        if not isinstance(name, str) or not name:
            raise RejectedPod(f"{self.path}.name", f"found {name!r}, expected a container name")
        return name

    @property
    def ends_early(self) -> bool:
        """Tell whether the container ends before the app containers start; sidecars do not."""
        return self.kind == _INIT and self.container.get("restartPolicy") != "Always"

    def ends_before(self, other: "Place") -> bool:
        """Tell whether the container has ended when another one, which stays, is started.

        Init containers and sidecars start in the order of their list, app containers after them.
        """
        starts_later = other.kind != _INIT or other.index > self.index
        return self.ends_early and starts_later and not other.ends_early


def places(pod: Json) -> list[Place]:
    """Return the containers of a pod.

    Raises:
        RejectedPod: if the pod does not have the shape of one.
    """
    spec = as_object(pod.get("spec"), "spec")
    found: list[Place] = []
    for kind in _LISTS:
        siblings = as_array(spec.get(kind), f"spec.{kind}")
        for index, container in enumerate(siblings):
            path = f"spec.{kind}[{index}]"
            if not isinstance(container, dict):
                as_object(container or "", path)
            found.append(Place(kind, index, container, siblings, path))
    return found
