"""Raw JSON: its one alias, so that `Any` has a single named entrance, and careful access to it.

A Pod is such a dict, never a client model: models drop or refuse unknown fields.
"""

from typing import Any, TypeAlias

from hami_dra.migration.notice import RejectedPod

Json: TypeAlias = dict[str, Any]


def as_object(value: object, path: str) -> Json:
    """Return a JSON object; a missing one counts as empty.

    Raises:
        RejectedPod: if it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RejectedPod(path, f"found {type(value).__name__}, expected an object")
    return value


def as_array(value: object, path: str) -> list[Any]:
    """Return a JSON array; a missing one counts as empty.

    Raises:
        RejectedPod: if it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise RejectedPod(path, f"found {type(value).__name__}, expected a list")
    return value
