"""A copy of a pod in the making. Only what changes is copied; the rest is the same object."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from hami_dra.migration import entry
from hami_dra.migration.excerpt import SCHEDULER_OWNED
from hami_dra.migration.json import Json, as_array, as_object
from hami_dra.migration.notice import RejectedPod
from hami_dra.migration.place import Place
from hami_dra.migration.record import ANNOTATION, Record

_SECTIONS: Final = ("limits", "requests")


@dataclass(frozen=True, slots=True)
class NamespaceLimits:
    """Managed resources that the LimitRanges of a namespace insist on (ruling 20).

    Attributes:
        maximum: those with a maximum. The API server demands that a pod names them, so what is
            taken from a pod stays there as zero.
        minimum: those with a minimum above zero, or a ratio of limit to request, which needs an
            amount too; no converted pod can satisfy either.
    """

    maximum: frozenset[str] = frozenset()
    minimum: frozenset[str] = frozenset()


class PodEdit:
    """Collects the edits of one migration, with their record, and gives the edited pod.

    Attributes:
        record: what was done, in this pass and before.
    """

    def __init__(self, pod: Json, record: Record, limits: NamespaceLimits) -> None:
        self._pod = pod
        self._limits = limits
        self._spec = dict(as_object(pod.get("spec"), "spec"))
        self._metadata = dict(as_object(pod.get("metadata"), "metadata"))
        self._own: dict[str, Json] = {}
        self._entries: dict[str, Json] | None = None
        self.record = record

    def strip(self, place: Place, names: Collection[str]) -> dict[str, Json]:
        """Remove resources from a container and return what stood there, by section.

        Raises:
            RejectedPod: if a LimitRange demands more than nothing of them.
        """
        resources = self._own_resources(place)
        removed: dict[str, Json] = {}
        for section in _SECTIONS:
            amounts = as_object(resources.get(section), f"{place.path}.resources.{section}")
            gone = {name: amounts[name] for name in names if name in amounts}
            if gone:
                self._check_minimum(gone, f"{place.path}.resources.{section}")
                removed[section] = gone
                left = self._left(amounts, gone)
                if left:
                    resources[section] = left
                else:
                    del resources[section]
        return removed

    def _left(self, amounts: Json, gone: Json) -> Json:
        """Return the amounts that stay; where a maximum is set, what is gone stays as zero."""
        return {
            name: "0" if name in gone else amount
            for name, amount in amounts.items()
            if name not in gone or name in self._limits.maximum
        }

    def _check_minimum(self, gone: Json, path: str) -> None:
        for name in gone:
            if name in self._limits.minimum:
                raise RejectedPod(
                    f"{path}.{name}",
                    f"a LimitRange of the namespace sets a minimum or a ratio of {name}, and a"
                    " converted container has none, since its claim says it all",
                    f"remove {name} from the LimitRange's min and maxLimitRequestRatio",
                )

    def add_claim(self, place: Place, wanted: str, template: str) -> str:
        """Give a container a claim made from a template; return the name of the pod's entry."""
        entries = self._own_entries()
        name = entry.unique_name(wanted, taken=entries)
        entries[name] = {"name": name, "resourceClaimTemplateName": template}
        self._spec["resourceClaims"].append(entries[name])
        self.use_claim(place, name)
        return name

    def make_from(self, name: str, template: str) -> None:
        """Have the claim of an entry that was added made from another template."""
        self._own_entries()[name]["resourceClaimTemplateName"] = template

    def _own_entries(self) -> dict[str, Json]:
        """Return the pod's entries by name; those that were added may be changed.

        A pod may bring many of its own along, so they are looked through once.
        """
        if self._entries is None:
            found = as_array(self._spec.get("resourceClaims"), "spec.resourceClaims")
            self._spec["resourceClaims"] = list(found)
            names = ((each.get("name"), each) for each in found if isinstance(each, dict))
            self._entries = {name: each for name, each in names if isinstance(name, str)}
        return self._entries

    def use_claim(self, place: Place, name: str) -> None:
        """Let a container use an entry of the pod."""
        resources = self._own_resources(place)
        claims = as_array(resources.get("claims"), f"{place.path}.resources.claims")
        resources["claims"] = [*claims, {"name": name}]

    def set_variable(self, place: Place, name: str, value: str) -> None:
        """Append an environment variable; the last of one name wins, as in legacy (ruling 11)."""
        env = as_array(self._current(place).get("env"), f"{place.path}.env")
        variable = {"name": name, "value": value}
        last = [each for each in env if isinstance(each, dict) and each.get("name") == name][-1:]
        if last != [variable]:
            self._own_container(place)["env"] = [*env, variable]
            self.record.variables.setdefault(place.name, []).append(name)

    def replace_scheduler(self, legacy: Collection[str], target: str) -> None:
        """Hand a pod of a legacy scheduler to the one that allocates claims (ruling 17)."""
        if self._spec.get("schedulerName") in legacy:
            self.record.fields["schedulerName"] = self._spec.pop("schedulerName")
            if target:
                self._spec["schedulerName"] = target

    def default_runtime_class(self, name: str) -> None:
        """Set the RuntimeClass of a pod that names none."""
        if not self._spec.get("runtimeClassName"):
            self._spec["runtimeClassName"] = name
            self.record.fields["runtimeClassName"] = None

    def add_toleration(self, key: str) -> None:
        """Tolerate a taint whatever its value, unless the pod does so already (ruling 18)."""
        tolerations = as_array(self._spec.get("tolerations"), "spec.tolerations")
        new = {"key": key, "operator": "Exists"}
        if new not in tolerations:
            self._spec["tolerations"] = [*tolerations, new]
            self.record.fields.setdefault("tolerations", []).append(key)

    def drop_scheduler_marks(self) -> list[str]:
        """Remove what HAMi's scheduler wrote on a pod that was copied; return the paths."""
        dropped: list[str] = []
        for section in ("annotations", "labels"):
            marks = as_object(self._metadata.get(section), f"metadata.{section}")
            gone = [key for key in marks if key.startswith(SCHEDULER_OWNED)]
            if gone:
                kept = {k: value for k, value in marks.items() if not k.startswith(SCHEDULER_OWNED)}
                self._metadata[section] = kept
                dropped.extend(f"metadata.{section}[{key}]" for key in gone)
        return dropped

    def finish(self) -> Json:
        """Return the edited pod with the record of what was done."""
        annotations = as_object(self._metadata.get("annotations"), "metadata.annotations")
        annotations = {**annotations, ANNOTATION: self.record.as_text()}
        metadata = {**self._metadata, "annotations": annotations}
        return {**self._pod, "metadata": metadata, "spec": self._spec}

    def _current(self, place: Place) -> Json:
        return self._own.get(place.path, place.container)

    def _own_container(self, place: Place) -> Json:
        """Return the container's copy, which is in the edited pod and may be changed."""
        container = self._own.get(place.path)
        if container is None:
            if self._spec[place.kind] is place.siblings:
                self._spec[place.kind] = list(place.siblings)
            container = self._spec[place.kind][place.index] = dict(place.container)
            self._own[place.path] = container
        return container

    def _own_resources(self, place: Place) -> Json:
        """Return the resources of the container's copy, a copy too."""
        container = self._own_container(place)
        found = container.get("resources")
        if found is place.container.get("resources"):
            container["resources"] = dict(as_object(found, f"{place.path}.resources"))
        resources: Json = container["resources"]
        return resources
