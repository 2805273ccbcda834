"""Read: annotations that steer legacy beyond the choice of cards (ruling 14).

`mutex` and the sharing mode can be kept; orders and weights cannot be said in a claim.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from hami_dra.migration.family import Family
from hami_dra.migration.json import as_array
from hami_dra.migration.notice import Code, Notice, RejectedPod
from hami_dra.migration.place import Place
from hami_dra.migration.policy import HintNames
from hami_dra.migration.selector import selectors
from hami_dra.migration.shape import Choice

DISABLE_CONTROL: Final = "CUDA_DISABLE_CONTROL"
"""Environment variable that switches the native library off."""

_MUTEX: Final = "mutex"
_MIG: Final = "mig"
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})  # Go's strconv.ParseBool


def choose(annotations: Mapping[str, object], family: Family) -> Choice:
    """Return which cards of a family a pod accepts.

    Legacy looks for the card's mode inside the annotation, not the other way round: a list names
    all that are welcome, and an empty value none.

    Raises:
        RejectedPod: if no DeviceClass offers what the annotations demand.
    """
    conditions = selectors(annotations, family)
    name = family.annotations.mode
    if not family.mode or name not in annotations or family.mode in str(annotations[name]):
        return Choice(family.device_class, conditions)
    if _MIG in str(annotations[name]) and family.mig_device_class:
        return Choice(family.mig_device_class, conditions, is_mig=True)
    raise RejectedPod(
        f"metadata.annotations[{name}]",
        f"found {annotations[name]!r}, expected it to contain {family.mode!r}:"
        f" cards of the DeviceClass {family.device_class} are shared in no other way",
        "remove the annotation, or name a class for MIG cards in the policy (migDeviceClass)",
    )


def wants_empty_card(annotations: Mapping[str, object], hints: HintNames) -> bool:
    """Tell whether a pod wants cards that nobody uses, whatever its share (`mutex`)."""
    return _MUTEX in _tokens(annotations.get(hints.gpu_policy))


def lost_hints(
    annotations: Mapping[str, object], hints: HintNames, family: Family
) -> Iterator[Notice]:
    """Yield a notice for each annotation whose wish no claim can carry."""
    if set(_tokens(annotations.get(hints.gpu_policy))) - {_MUTEX}:
        yield _lost(hints.gpu_policy, "the scheduler takes the first cards that fit")
    for name in (hints.node_policy, hints.weights):
        if name in annotations:
            yield _lost(name, "the scheduler's own scores order the nodes")
    if _is_true(annotations.get(family.annotations.numa_bind)):
        yield _lost(family.annotations.numa_bind, "cards of several NUMA nodes may be taken")


def control_disabled(place: Place) -> bool:
    """Tell whether a container's environment switches the native library off."""
    env = as_array(place.container.get("env"), f"{place.path}.env")
    values = [
        variable.get("value")
        for variable in env
        if isinstance(variable, dict) and variable.get("name") == DISABLE_CONTROL
    ]
    return bool(values) and _is_true(values[-1])


def _is_true(value: object) -> bool:
    return isinstance(value, str) and value in _TRUE


def _tokens(value: object) -> list[str]:
    return [token for part in str(value or "").split(",") if (token := part.strip())]


def _lost(name: str, instead: str) -> Notice:
    path = f"metadata.annotations[{name}]"
    return Notice(Code.HINT_LOST, path, f"no claim can say it; {instead}")
