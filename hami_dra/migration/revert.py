"""Revert: give a converted pod back as it was, from the record that its annotation holds.

A record is text that anyone can write, so it is followed only as far as the pod bears it out.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias

from hami_dra.migration import record
from hami_dra.migration.json import Json, as_array, as_object
from hami_dra.migration.notice import RejectedPod
from hami_dra.migration.place import Place, places
from hami_dra.migration.record import ANNOTATION, Converted, Record

_PATH: Final = f"metadata.annotations[{ANNOTATION}]"
_ADVICE: Final = "restore what is missing, or take the manifest from before the conversion"
_TEXT_FIELDS: Final = ("schedulerName", "runtimeClassName")
_TOLERATIONS: Final = "tolerations"

Pointer: TypeAlias = tuple[str | int, ...]


def revert(pod: Json) -> list[Json]:
    """Work out how a converted pod becomes again what it was.

    What HAMi's scheduler had written on the pod does not come back: it described another pod.

    Args:
        pod: the pod, or a workload's pod template, as JSON; never changed.

    Returns:
        RFC 6902 operations; none for a pod without a record.

    Raises:
        RejectedPod: if the record is damaged, or the pod does not bear it out.
    """
    annotations = as_object(
        as_object(pod.get("metadata"), "metadata").get("annotations"), "metadata.annotations"
    )
    if ANNOTATION not in annotations:
        return []
    done = _checked(pod, annotations[ANNOTATION])
    spec = as_object(pod.get("spec"), "spec")
    operations = [operation for place in places(pod) for operation in _container(place, done)]
    operations += _entries(spec, done)
    operations += _fields(spec, done.fields)
    operations += _annotation(pod, annotations)
    return operations


def _checked(pod: Json, written: object) -> Record:
    """Return the record, all of which must be borne out."""
    done = record.read(pod)
    if _decoded(written) == json.loads(done.as_text()):
        _check_containers(pod, done)
        _check_fields(done.fields)
        return done
    lost = _decoded(written).get("containers")
    names = lost.keys() - done.containers.keys() if isinstance(lost, dict) else ()
    where = f" of container {min(names)}" if names else ""
    raise RejectedPod(
        _PATH,
        f"found a record{where} that does not fit the pod, expected one as a conversion writes it,"
        " and the claims that it names",
        _ADVICE,
    )


def _decoded(written: object) -> Json:
    try:
        decoded = json.loads(written) if isinstance(written, str) else None
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        raise RejectedPod(_PATH, "found no JSON object, expected a record", _ADVICE)
    return decoded


def _check_containers(pod: Json, done: Record) -> None:
    there = {place.name for place in places(pod)}
    for name in (*done.containers, *done.variables):
        if name not in there:
            reason = f"found container {name}, expected one that the pod has"
            raise RejectedPod(_PATH, reason, _ADVICE)


def _check_fields(fields: Json) -> None:
    for key, value in fields.items():
        keys = value if isinstance(value, list) else [None]
        is_text = key in _TEXT_FIELDS and (value is None or isinstance(value, str))
        is_keys = key == _TOLERATIONS and all(isinstance(each, str) for each in keys)
        if not (is_text or is_keys):
            reason = f"found the field {key}: {value!r}, expected one that a conversion changes"
            raise RejectedPod(_PATH, reason, _ADVICE)


def _container(place: Place, done: Record) -> Iterator[Json]:
    here = ("spec", place.kind, place.index)
    env = as_array(place.container.get("env"), f"{place.path}.env")
    appended = _last_of_each(env, done.variables.get(place.name, ()))
    yield from _shortened(env, appended, (*here, "env"))
    if place.name in done.containers:
        yield from _resources(place, (*here, "resources"), done.containers[place.name])


def _resources(place: Place, here: Pointer, converted: Converted) -> Iterator[Json]:
    """Take the claims away and bring the amounts back."""
    path = f"{place.path}.resources"
    if place.container.get("resources") is None:
        yield _operation("add", here, {})
    resources = as_object(place.container.get("resources"), path)
    claims = as_array(resources.get("claims"), f"{path}.claims")
    ours = _last_of_each(claims, converted.claims)
    yield from _shortened(claims, ours, (*here, "claims"))
    for section, amounts in (("limits", converted.limits), ("requests", converted.requests)):
        if not as_object(resources.get(section), f"{path}.{section}"):
            if amounts:
                yield _operation("add", (*here, section), amounts)
            continue
        for name, amount in amounts.items():
            yield _operation("add", (*here, section, name), amount)


def _entries(spec: Json, done: Record) -> Iterator[Json]:
    """Take away the pod's entries that the record names; all are known to be ours."""
    entries = as_array(spec.get("resourceClaims"), "spec.resourceClaims")
    ours = {claim for each in done.containers.values() for claim in each.claims}
    yield from _shortened(entries, _last_of_each(entries, ours), ("spec", "resourceClaims"))


def _fields(spec: Json, fields: Json) -> Iterator[Json]:
    """Give the pod's own fields their values back."""
    for key in _TEXT_FIELDS:
        if fields.get(key) is not None:
            yield _operation("add", ("spec", key), fields[key])
        elif key in fields and key in spec:
            yield _operation("remove", ("spec", key))
    tolerations = as_array(spec.get(_TOLERATIONS), f"spec.{_TOLERATIONS}")
    added = [{"key": key, "operator": "Exists"} for key in fields.get(_TOLERATIONS, ())]
    ours = [index for each in added for index in _positions(tolerations, each)[-1:]]
    yield from _shortened(tolerations, ours, ("spec", _TOLERATIONS))


def _annotation(pod: Json, annotations: Json) -> Iterator[Json]:
    """Take the record away, and what has nothing left in it."""
    path: Pointer = ("metadata", "annotations", ANNOTATION)
    for around in (annotations, pod["metadata"]):
        if len(around) > 1:
            break
        path = path[:-1]
    yield _operation("remove", path)


def _last_of_each(members: list[Any], names: Iterable[str]) -> list[int]:
    """Return where objects of these names stand last, further ahead for a name given twice."""
    found: list[int] = []
    for name in names:
        named = [
            index
            for index, member in enumerate(members)
            if isinstance(member, dict) and member.get("name") == name and index not in found
        ]
        found += named[-1:]
    return found


def _positions(members: list[Any], wanted: Json) -> list[int]:
    return [index for index, member in enumerate(members) if member == wanted]


def _shortened(members: list[Any], gone: Collection[int], path: Pointer) -> Iterator[Json]:
    """Remove members one by one, so that what was written about the others stays."""
    if gone and len(gone) == len(members):
        yield _operation("remove", path)
        return
    for index in sorted(gone, reverse=True):
        yield _operation("remove", (*path, index))


def _operation(kind: str, path: Pointer, value: object = None) -> Json:
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)
    return {"op": kind, "path": pointer} | ({"value": value} if kind == "add" else {})
