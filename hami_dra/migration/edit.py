"""A copy of a pod in the making. Only what changes is copied; the rest is the same object."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from hami_dra.migration import entry, record
from hami_dra.migration.json import Json, as_array, as_object
from hami_dra.migration.place import Place
from hami_dra.migration.record import Converted

_SCHEDULER_OWNED: Final = ("hami.io/vgpu-", "hami.io/bind-")


class PodEdit:
    """Collects the edits of one migration and gives the edited pod."""

    def __init__(self, pod: Json, converted: Mapping[str, Converted]) -> None:
        self._pod = pod
        self._spec = dict(as_object(pod.get("spec"), "spec"))
        self._metadata = dict(as_object(pod.get("metadata"), "metadata"))
        self.records = dict(converted)

    def strip(
        self, place: Place, names: Collection[str], *, held: frozenset[str]
    ) -> dict[str, Json]:
        """Remove resources from a container and return what stood there, by section.

        Held ones become zero instead, because a LimitRange insists that they stand there.
        """
        container = self._current(place)
        resources = dict(as_object(container.get("resources"), f"{place.path}.resources"))
        removed: dict[str, Json] = {}
        for section in ("limits", "requests"):
            amounts = as_object(resources.get(section), f"{place.path}.resources.{section}")
            gone = {name: amounts[name] for name in names if name in amounts}
            if gone:
                removed[section] = gone
                left = {
                    name: "0" if name in gone else amount
                    for name, amount in amounts.items()
                    if name not in gone or name in held
                }
                resources[section] = left
                if not left:
                    del resources[section]
        self._replace(place, {**container, "resources": resources})
        return removed

    def claim(self, place: Place, wanted: str, template: str) -> str:
        """Give a container a claim made from a template; return the name of the pod's entry."""
        entries = as_array(self._spec.get("resourceClaims"), "spec.resourceClaims")
        taken = [each.get("name") for each in entries if isinstance(each, Mapping)]
        name = entry.unique_name(wanted, taken=taken)
        new = {"name": name, "resourceClaimTemplateName": template}
        self._spec["resourceClaims"] = [*entries, new]
        container = self._current(place)
        resources = as_object(container.get("resources"), f"{place.path}.resources")
        claims = as_array(resources.get("claims"), f"{place.path}.resources.claims")
        resources = {**resources, "claims": [*claims, {"name": name}]}
        self._replace(place, {**container, "resources": resources})
        return name

    def add_variable(self, place: Place, name: str, value: str) -> None:
        """Append an environment variable; the last of one name wins, as in legacy (ruling 11)."""
        container = self._current(place)
        env = as_array(container.get("env"), f"{place.path}.env")
        self._replace(place, {**container, "env": [*env, {"name": name, "value": value}]})

    def replace_scheduler(self, legacy: Collection[str], target: str) -> None:
        """Hand a pod of a legacy scheduler to the one that allocates claims (ruling 17)."""
        if self._spec.get("schedulerName") in legacy:
            if target:
                self._spec["schedulerName"] = target
            else:
                del self._spec["schedulerName"]

    def drop_scheduler_marks(self) -> list[str]:
        """Remove what HAMi's scheduler wrote on a pod that was copied; return the paths."""
        dropped: list[str] = []
        for section in ("annotations", "labels"):
            marks = as_object(self._metadata.get(section), f"metadata.{section}")
            gone = [key for key in marks if str(key).startswith(_SCHEDULER_OWNED)]
            if gone:
                self._metadata[section] = _without(marks, gone.__contains__)
                dropped.extend(f"metadata.{section}[{key}]" for key in gone)
        return dropped

    def finish(self) -> Json:
        """Return the edited pod with the record of what was done."""
        annotations = as_object(self._metadata.get("annotations"), "metadata.annotations")
        annotations = {**annotations, record.ANNOTATION: record.write(self.records)}
        metadata = {**self._metadata, "annotations": annotations}
        return {**self._pod, "metadata": metadata, "spec": self._spec}

    def _current(self, place: Place) -> Json:
        container: Json = self._spec[place.kind][place.index]
        return container

    def _replace(self, place: Place, container: Json) -> None:
        containers = list(self._spec[place.kind])
        containers[place.index] = container
        self._spec[place.kind] = containers


def _without(items: Json, unwanted: Callable[[object], bool]) -> Json:
    return {key: value for key, value in items.items() if not unwanted(key)}
