"""The parts of a pod that decide its migration, and nothing else of it.

A migration sees only this excerpt, so pods with equal excerpts have equal migrations by
construction: those of one workload, which differ in name, image and command at most.
"""

from functools import lru_cache
from typing import Final

from hami_dra.migration.hint import DISABLE_CONTROL
from hami_dra.migration.json import Json
from hami_dra.migration.policy import CORE_POLICY_VARIABLE, LOG_LEVEL_VARIABLE, Policy
from hami_dra.migration.record import ANNOTATION

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Marks the API's copy of a static pod, which nothing may change."""

OPT_OUT_LABEL: Final = "hami.io/webhook"
"""Label of pods and namespaces that legacy, and we, leave alone when it says `ignore`."""

SCHEDULER_OWNED: Final = ("hami.io/vgpu-", "hami.io/bind-")
"""Starts of the annotations and labels that HAMi's scheduler writes on pods (ruling 21)."""

_SPEC: Final = (
    "nodeName",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "schedulingGroup",
    "tolerations",
)
_CONTAINER: Final = ("name", "resources", "restartPolicy")


def excerpt(pod: Json, policy: Policy) -> Json:
    """Return the parts of a pod that a migration reads or changes, malformed ones as they are.

    A patch that is made of the excerpt fits the pod: lists of containers keep their length, and of
    maps and lists of variables, to which only the end is added, enough remains to tell whether they
    are there.
    """
    annotations, variables = _names(policy)
    part: Json = {}
    if "metadata" in pod:
        part["metadata"] = _metadata(pod["metadata"], annotations)
    if "spec" in pod:
        part["spec"] = _spec(pod["spec"], variables)
    return part


@lru_cache(maxsize=16)
def _names(policy: Policy) -> tuple[frozenset[str], frozenset[str]]:
    """Return the annotations and the environment variables that mean something to a policy."""
    annotations = {ANNOTATION, MIRROR_ANNOTATION, *policy.hints.model_dump().values()}
    variables = {DISABLE_CONTROL, CORE_POLICY_VARIABLE, LOG_LEVEL_VARIABLE}
    for family in policy.families:
        annotations.update(family.annotations.model_dump().values())
        if family.cores_require is not None:
            annotations.add(family.cores_require.name)
        variables.update((family.priority_variable, family.visible_variable))
    return frozenset(annotations), frozenset(variables)


def _metadata(metadata: object, names: frozenset[str]) -> object:
    if not isinstance(metadata, dict):
        return metadata
    part: Json = {}
    if "annotations" in metadata:
        part["annotations"] = _marks(metadata["annotations"], names)
    if "labels" in metadata:
        part["labels"] = _marks(metadata["labels"], _LABELS)
    return part


_LABELS: Final = frozenset({OPT_OUT_LABEL})


def _marks(marks: object, names: frozenset[str]) -> object:
    if not isinstance(marks, dict):
        return marks
    return {
        name: value
        for name, value in marks.items()
        if name in names or name.startswith(SCHEDULER_OWNED)
    }


def _spec(spec: object, variables: frozenset[str]) -> object:
    if not isinstance(spec, dict):
        return spec
    part = {name: spec[name] for name in _SPEC if name in spec}
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind)
        if isinstance(containers, list):
            part[kind] = [_container(container, variables) for container in containers]
        elif kind in spec:
            part[kind] = containers
    return part


def _container(container: object, variables: frozenset[str]) -> object:
    if not isinstance(container, dict):
        return container
    part = {name: container[name] for name in _CONTAINER if name in container}
    if "env" in container:
        part["env"] = _environment(container["env"], variables)
    if "securityContext" in container:
        part["securityContext"] = _privileged(container["securityContext"])
    return part


def _environment(env: object, variables: frozenset[str]) -> object:
    if not isinstance(env, list):
        return env
    try:
        return [variable for variable in env if variable["name"] in variables]
    except (KeyError, TypeError):  # malformed: each must be looked at
        return [variable for variable in env if _has_name(variable, variables)]


def _has_name(variable: object, names: frozenset[str]) -> bool:
    """Tell whether a variable has one of these names; it may be anything, a list too."""
    if not isinstance(variable, dict):
        return False
    name = variable.get("name")
    return isinstance(name, str) and name in names


def _privileged(context: object) -> object:
    if not isinstance(context, dict):
        return context
    return {"privileged": context["privileged"]} if "privileged" in context else {}
