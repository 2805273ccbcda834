"""The patch from one JSON document to another that was made from it.

Why our own: a migration copies only what it changes, so two parts that are the same object need no
look inside. A general diff has to look, which takes many times as long for a large pod.
"""

from typing import Any, Final

from hami_dra.migration.json import Json

_MISSING: Final = object()


def difference(before: Json, after: Json) -> list[Json]:
    """Return RFC 6902 operations that turn `before` into `after`.

    Lists may have changed members and further ones at the end; a list that became shorter is
    replaced as a whole.

    Args:
        before: the document as it was.
        after: the document as it should be; shares with `before` what did not change.
    """
    operations: list[Json] = []
    _compare(before, after, "", operations)
    return operations


def _compare(before: Any, after: Any, path: str, out: list[Json]) -> None:  # noqa: ANN401 - JSON
    if isinstance(before, dict) and isinstance(after, dict):
        _compare_objects(before, after, path, out)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        _compare_lists(before, after, path, out)
    elif type(before) is not type(after) or before != after:
        out.append({"op": "replace", "path": path, "value": after})


def _compare_objects(before: Json, after: Json, path: str, out: list[Json]) -> None:
    kept = 0
    for key, value in before.items():
        now = after.get(key, _MISSING)
        if now is _MISSING:
            out.append({"op": "remove", "path": f"{path}/{_escaped(key)}"})
            continue
        kept += 1
        if now is not value:
            _compare(value, now, f"{path}/{_escaped(key)}", out)
    if kept < len(after):
        for key, value in after.items():
            if key not in before:
                out.append({"op": "add", "path": f"{path}/{_escaped(key)}", "value": value})


def _compare_lists(before: list[Any], after: list[Any], path: str, out: list[Json]) -> None:
    for index, old in enumerate(before):
        if old is not after[index]:
            _compare(old, after[index], f"{path}/{index}", out)
    out.extend({"op": "add", "path": f"{path}/-", "value": new} for new in after[len(before) :])


def _escaped(key: str) -> str:
    # Nearly all keys are plain names.
    return key if key.isidentifier() else key.replace("~", "~0").replace("/", "~1")
