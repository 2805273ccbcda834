"""Apply the patches of pods to the document that they stand in."""

from collections.abc import Iterable
from typing import Any

import jsonpatch

from hami_dra.cli.workloads import Steps
from hami_dra.migration import Json


def patched(document: Any, patches: Iterable[tuple[Steps, list[Json]]]) -> Any:  # noqa: ANN401
    """Return a document with the patch of each pod applied where the pod stands.

    Args:
        document: plain JSON; changed in place.
        patches: where a pod stands, and RFC 6902 operations on it.
    """
    for steps, operations in patches:
        pod = document
        for step in steps:
            pod = pod[step]
        jsonpatch.apply_patch(pod, operations, in_place=True)
    return document
