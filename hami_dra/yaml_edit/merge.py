"""Which members of an object stay, go, change and come, with merge keys taken into account."""

from dataclasses import dataclass
from typing import Any

from hami_dra.yaml_edit.anchors import Anchors
from hami_dra.yaml_edit.node import Mapping, Pair
from hami_dra.yaml_edit.same import same
from hami_dra.yaml_edit.value import Reader, is_merge


@dataclass(frozen=True, slots=True)
class Change:
    """What happens to the members of one object.

    Attributes:
        keys: of each pair as text; None for a merge key.
        keeps: whether each pair stays, changed or not.
        added: the members that come.
    """

    keys: list[str | None]
    keeps: list[bool]
    added: dict[str, Any]


def change_of(node: Mapping, after: dict[str, Any], anchors: Anchors, reader: Reader) -> Change:
    """Work out what happens to the members of an object.

    A merge key stays as long as, with the members that are written beside it, it says what is
    wanted; otherwise what it brings is written out.
    """
    keys = [None if is_merge(pair.key) else reader.key(pair.key) for pair in node.pairs]
    if None in keys and _merge_serves(node.pairs, keys, after, anchors):
        keeps = [key is None or key in after for key in keys]
        return Change(keys, keeps, _added(after, keys, _brought(node.pairs, keys, anchors)))
    keeps = [key is not None and key in after for key in keys]
    return Change(keys, keeps, _added(after, keys, {}))


def _added(
    after: dict[str, Any], keys: list[str | None], brought: dict[str, Any]
) -> dict[str, Any]:
    return {key: v for key, v in after.items() if key not in keys and key not in brought}


def _brought(pairs: list[Pair], keys: list[str | None], anchors: Anchors) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair, key in zip(pairs, keys, strict=True):
        if key is None:
            found.update(anchors.merges(pair.value) or {})
    return found


def _merge_serves(
    pairs: list[Pair], keys: list[str | None], after: dict[str, Any], anchors: Anchors
) -> bool:
    """Tell whether reading the pairs in their order would give what is wanted."""
    found: dict[str, Any] = {}
    for pair, key in zip(pairs, keys, strict=True):
        if key is None:
            brought = anchors.merges(pair.value)
            if brought is None:
                return False
            found.update(brought)
        elif key in after:
            found[key] = after[key]
    return all(key in after and same(value, after[key]) for key, value in found.items())
