"""The cards of a cluster, from a file: ResourceSlices as kubectl prints them, or a short list."""

from collections.abc import Iterator
from typing import Any, Final

from hami_dra.cli.documents import split
from hami_dra.cli.sources import UnreadableError, read_text
from hami_dra.migration import Cards, Json, Policy
from hami_dra.migration.inventory import MIB, cards_of, sizes_of
from hami_dra.migration.quantity import NANO, QuantityError, parse

_KEYS: Final = ("model", "memory", "count")
_EXPECTED: Final = (
    "expected what kubectl get resourceslices -o yaml prints, or"
    " cards: [{model: NVIDIA L4, memory: 23034Mi, count: 8}]"
)


def read_cards(name: str, policy: Policy) -> Cards:
    """Read what cards there are, of the drivers that the policy names.

    Raises:
        UnreadableError: if the file says nothing of cards.
    """
    roots = [document.parsed().value for document in split(name, read_text(name))]
    written = [root for root in roots if root is not None]
    short = [root for root in written if isinstance(root, dict) and "cards" in root]
    if short and len(written) == 1:
        return _from_list(name, short[0])
    slices = [each for root in written for each in _slices(name, root)]
    return _from_slices(name, slices, {family.driver for family in policy.families})


def _slices(name: str, root: Any) -> Iterator[Json]:  # noqa: ANN401 - any YAML
    """Walk the slices of a document: itself, or the items of a List."""
    kind = str(root.get("kind", "")) if isinstance(root, dict) else ""
    if kind.endswith("List") and isinstance(root.get("items"), list):
        for item in root["items"]:
            # Items of a typed list need not repeat their kind.
            yield from _slices(name, {"kind": kind.removesuffix("List"), **item})
    elif kind == "ResourceSlice":
        yield root
    else:
        raise UnreadableError(f"{name}: found {kind or 'something else'}, {_EXPECTED}")


def _from_slices(name: str, slices: list[Json], drivers: set[str]) -> Cards:
    try:
        sizes = [
            sizes_of(each, driver=each["spec"]["driver"])
            for each in slices
            if each["spec"]["driver"] in drivers
        ]
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"found a ResourceSlice without {error}, expected spec.driver and spec.pool"
        raise UnreadableError(f"{name}: {reason}") from error
    cards = cards_of(sizes)
    if not cards.memory_mib:
        raise UnreadableError(
            f"{name}: found {len(slices)} ResourceSlices and no shareable card, expected cards of"
            f" the driver {', '.join(sorted(drivers)) or 'that a family of the policy names'}"
        )
    return cards


def _from_list(name: str, root: Json) -> Cards:
    entries = root["cards"]
    if not isinstance(entries, list) or not entries or len(root) > 1:
        raise UnreadableError(f"{name}: {_EXPECTED}")
    sizes = [_size(f"{name}: cards[{index}]", entry) for index, entry in enumerate(entries)]
    return Cards(frozenset(sizes))


def _size(path: str, entry: Any) -> int:  # noqa: ANN401 - any YAML
    if not isinstance(entry, dict) or "memory" not in entry:
        raise UnreadableError(f"{path}: found {entry!r}, expected memory, such as 80Gi")
    if unknown := entry.keys() - set(_KEYS):
        raise UnreadableError(f"{path}.{min(unknown)}: unknown key, expected {', '.join(_KEYS)}")
    try:
        mib = parse(entry["memory"]).nanos // (NANO * MIB)
    except QuantityError as error:
        raise UnreadableError(f"{path}.memory: {error}, such as 80Gi") from error
    if mib < 1:
        found = entry["memory"]
        raise UnreadableError(
            f"{path}.memory: found {found} bytes, expected at least 1 MiB; did you mean {found}Mi?"
        )
    return mib
