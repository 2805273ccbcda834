"""Patches that kustomize applies to other manifests: none can be converted by itself.

What a pod asks for is known once the patch is applied: half of it stands in the base. So a patch
that names a managed resource is told, and what kustomize builds can be converted.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from hami_dra.cli.sources import Source
from hami_dra.cli.workloads import named_in
from hami_dra.yaml_edit import SyntaxProblem, parse

_LISTS: Final = ("patches", "patchesJson6902", "patchesStrategicMerge")
_FILES: Final = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_SLASH_OF_POINTERS: Final = "~1"


def spellings(name: str) -> tuple[str, str]:
    """Return a resource's name as it is, and as a JSON pointer has it."""
    return name, name.replace("/", _SLASH_OF_POINTERS)


def named_in_patch(document: Any, names: Collection[str]) -> str:  # noqa: ANN401 - any YAML
    """Return a managed resource that a patch in a document names; empty for none.

    Args:
        document: a kustomization, or the operations of a JSON patch; anything else has none.
        names: of managed resources.
    """
    if isinstance(document, dict):
        texts = [text for key in _LISTS for text in _texts(document.get(key))]
    elif _is_json_patch(document):
        if name := named_in(document, names):
            return name
        texts = [str(operation["path"]) for operation in document]
    else:
        return ""
    # The longest first: `nvidia.com/gpu` is in `nvidia.com/gpumem` too.
    for name in sorted(names, key=len, reverse=True):
        if any(spelling in text for text in texts for spelling in spellings(name)):
            return name
    return ""


def _is_json_patch(document: Any) -> bool:  # noqa: ANN401 - any YAML
    return isinstance(document, list) and all(
        isinstance(each, dict) and "op" in each and "path" in each for each in document
    )


def _texts(node: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for member in node.values() if isinstance(node, dict) else node:
            yield from _texts(member)


@lru_cache
def patch_files(directory: Path) -> frozenset[Path]:
    """Return the files that the kustomization of a directory applies as patches; none without."""
    for name in _FILES:
        with suppress(OSError, ValueError, SyntaxProblem):
            if not (directory / name).is_file():
                continue  # not there, or a pipe, which could be waited for without end
            value = parse((directory / name).read_text("utf-8")).value
            return frozenset(directory / path for path in _paths(value))
    return frozenset()


def is_patch(source: Source) -> bool:
    """Tell whether a kustomization beside or above a file, in what was named, has it as a patch."""
    if source.path is None or source.root is None:
        return False
    file = _normal(source.path)
    return any(
        file in {_normal(each) for each in patch_files(directory)}
        for directory in source.path.parents
        if directory.is_relative_to(source.root)
    )


def _paths(kustomization: Any) -> Iterator[str]:  # noqa: ANN401 - any YAML
    if not isinstance(kustomization, dict):
        return
    for key in _LISTS:
        listed = kustomization.get(key)
        for each in listed if isinstance(listed, list) else ():
            path = each.get("path") if isinstance(each, dict) else each
            if isinstance(path, str) and "\n" not in path:
                yield path


def _normal(path: Path) -> str:
    return os.path.normpath(path)
