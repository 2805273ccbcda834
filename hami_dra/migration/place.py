"""Where the containers of a pod stand, so that messages and edits name the same field."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hami_dra.migration.json import Json, as_array, as_object
from hami_dra.migration.notice import RejectedPod

# Init containers first, as legacy visits them. Ephemeral containers cannot carry resources.
_LISTS: Final = ("initContainers", "containers")


@dataclass(frozen=True, slots=True)
class Place:
    """A container and where it stands.

    Attributes:
        kind: the list in the pod's spec.
        index: its position there.
        container: the container as it was found.
    """

    kind: str
    index: int
    container: Json

    @property
    def path(self) -> str:
        """Return the container's path in the pod."""
        return f"spec.{self.kind}[{self.index}]"

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


def places(pod: Json) -> Iterator[Place]:
    """Walk the containers of a pod.

    Raises:
        RejectedPod: if the pod does not have the shape of one.
    """
    spec = as_object(pod.get("spec"), "spec")
    for kind in _LISTS:
        for index, container in enumerate(as_array(spec.get(kind), f"spec.{kind}")):
            yield Place(kind, index, as_object(container, f"spec.{kind}[{index}]"))
