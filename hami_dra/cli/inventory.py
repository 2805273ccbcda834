"""The cards of a cluster, from a file: ResourceSlices as kubectl prints them, or a short list."""

from collections.abc import Iterator
from typing import Any, Final

from hami_dra.cli.documents import split
from hami_dra.cli.sources import UnreadableError, read_text
from hami_dra.migration import CardKind, Cards, Json, Policy
from hami_dra.migration.inventory import MIB, cards_in
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
        return _from_list(name, short[0], {family.driver for family in policy.families})
    slices = [each for root in written for each in _slices(name, root)]
    return _from_slices(name, slices, policy)


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


def _from_slices(name: str, slices: list[Json], policy: Policy) -> Cards:
    try:
        cards = cards_in(slices, policy)
    except (KeyError, TypeError, AttributeError) as error:
        reason = f"found a ResourceSlice without {error}, expected spec.driver and spec.pool"
        raise UnreadableError(f"{name}: {reason}") from error
    if not cards.kinds:
        drivers = sorted({family.driver for family in policy.families})
        raise UnreadableError(
            f"{name}: found {len(slices)} ResourceSlices and no shareable card, expected cards of"
            f" the driver {', '.join(drivers) or 'that a family of the policy names'}"
        )
    return cards


def _from_list(name: str, root: Json, drivers: set[str]) -> Cards:
    """Read a short list; who publishes a card is not in it, so it may be any driver's."""
    entries = root["cards"]
    if not isinstance(entries, list) or not entries or len(root) > 1:
        raise UnreadableError(f"{name}: {_EXPECTED}")
    bare, kinds = set[int](), set[CardKind]()
    for index, entry in enumerate(entries):
        size = _size(f"{name}: cards[{index}]", entry)
        if model := entry.get("model"):
            kinds |= {CardKind(driver, str(model), size) for driver in drivers}
        else:
            bare.add(size)
    return Cards(frozenset(bare), frozenset(kinds))


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
