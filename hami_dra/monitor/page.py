"""A snapshot as a page for people: no scripts, nothing that is loaded from anywhere.

Every bar has its numbers beside it, so neither colours nor sizes are needed to read it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from hami_dra import __version__
from hami_dra.markup import Markup, element, joined
from hami_dra.monitor.snapshot import CardUse, ContainerUse, Snapshot

RELOAD_S: Final = 10
"""After which a browser asks again."""

STILL: Final = "still"
"""The query of a page that stays as it is, for whoever needs longer to read it."""

_MIB: Final = 2**20
_ALL: Final = 100
_NEARLY: Final = 0.95
"""Of its limit, where a container is marked: its next allocation may be refused."""

_COLUMNS: Final = ("container", "memory", "compute", "time of the card")


def as_html(
    snapshot: Snapshot, problems: Mapping[str, str], now: datetime, *, is_still: bool = False
) -> str:
    """Return the page.

    Args:
        snapshot: what it shows.
        problems: what does not work, by name; empty texts for what does.
        now: when that was.
        is_still: whether it stays as it is, and does not reload itself.
    """
    title = f"GPUs of {snapshot.node}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup() if is_still else element("meta", http_equiv="refresh", content=RELOAD_S),
        element("title", title),
        element("style", Markup(_style())),
    )
    main = element(
        "main",
        joined(
            element("h1", title),
            element("p", _summary(snapshot), class_="about"),
            _trouble(snapshot, problems),
            _legend() if snapshot.cards else Markup(),
            *(_card(use, _containers(snapshot, use)) for use in snapshot.cards),
            _elsewhere(snapshot),
        ),
    )
    body = element("body", main, _footer(now, is_still=is_still))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _style() -> str:
    # Loaded when a person looks, which most monitors never see.
    from hami_dra.monitor.style import STYLE  # noqa: PLC0415 - see above

    return STYLE


def _summary(snapshot: Snapshot) -> str:
    said = [] if _are_cards_unknown(snapshot) else [_counted(len(snapshot.cards), "card")]
    if snapshot.claims is not None:
        said.append(_counted(snapshot.claims, "claim"))
    if snapshot.unnamed is not None:
        containers = len({each.container for each in snapshot.containers})
        said.append(_counted(containers, "container") + " with a share")
    return ", ".join(said)


def _are_cards_unknown(snapshot: Snapshot) -> bool:
    """Tell whether nobody has named a card yet; later on cards keep their names."""
    return not snapshot.cards and not snapshot.works.get("cards", True)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _trouble(snapshot: Snapshot, problems: Mapping[str, str]) -> Markup:
    lines = [f"{name}: {text}" for name, text in problems.items() if text]
    if snapshot.unnamed:
        has = "is" if snapshot.unnamed == 1 else "are"
        lines.append(
            f"{_counted(snapshot.unnamed, 'prepared claim')} {has} of no container that the kubelet"
            " lists: it starts just now, or is an init container"
        )
    if snapshot.left_out:
        lines.append(f"{_counted(snapshot.left_out, 'claim')} more than can be shown")
    if not lines:
        return Markup()
    return element(
        "section", *(element("p", line) for line in lines), class_="trouble", role="note"
    )


def _legend() -> Markup:
    marks = (
        element("li", element("span", "", class_=f"mark {kind}"), f" {text}")
        for kind, text in (("held", "given away"), ("used", "in use"))
    )
    return element("ul", *marks, class_="legend")


def _containers(snapshot: Snapshot, use: CardUse) -> Markup:
    """Show the containers that have a share of a card."""
    if found := [each for each in snapshot.containers if each.uuid == use.card.uuid]:
        return _table(found)
    said = "No container has a share of it."
    if snapshot.unnamed is None:
        said = "Which containers have a share of it is not known now."
    return element("p", said, class_="soft")


def _card(use: CardUse, containers: Markup) -> Markup:
    card = use.card
    tags = []
    if use.given is not None:
        tags.append(element("span", _counted(use.given.shares, "share"), class_="tag"))
    if card.is_simulated:
        tags.append(element("span", "simulated", class_="tag"))
    if card.is_partitioned:
        tags.append(element("span", "partitioned, not shared out", class_="tag"))
    head = element(
        "header",
        element("h2", f"{card.index}: {card.model}"),
        element("code", card.uuid, class_="soft"),
        *tags,
    )
    bars = element("div", _memory(use), _cores(use), class_="bars")
    silent = [f"does not tell its {what}: {error}" for what, error in card.errors]
    notes = (element("p", text, class_="warn") for text in silent)
    return element("section", head, bars, *notes, containers, class_="card")


def _memory(use: CardUse) -> Markup:
    total, used, given = use.card.memory_bytes, use.card.used_bytes, use.given
    if used is None and given and given.held:
        # Of a card that says nothing of itself, what its claims say.
        used = given.held.total_bytes
    held = given.allocated.memory_mib * _MIB if given else None
    said = f"{_known(held)} given away, {_known(used)} in use of {_known(total)}"
    held, used = held or 0, used or 0
    return _bar("memory", said, held, used, total or max(held, used))


def _known(count: int | None) -> str:
    return "unknown" if count is None else _size(count)


def _cores(use: CardUse) -> Markup:
    given, busy = use.given, use.card.busy_percent
    cores = given.allocated.cores if given else 0
    said = f"{cores} % given away" if given else "unknown given away"
    if given and given.unlimited:
        said += f" and {given.unlimited} without a limit"
    said += "" if busy is None else f", {busy} % busy"
    return _bar("compute", said, cores, busy or 0, _ALL)


def _bar(name: str, said: str, held: int, used: int, total: int) -> Markup:
    text = element("p", element("strong", name), element("span", said))
    return element("div", text, _drawing(f"{name}: {said}", held, used, total), class_="bar")


def _drawing(title: str, held: float, used: float, total: float, *, warn: bool = False) -> Markup:
    """Draw what is held, and over the lower half of it what is used."""
    parts = [element("title", title), _rect("track", 1, 0, 8)]
    for kind, part, top in (
        ("held", held, 0),
        ("full" if warn else "used", used, 3 if held else 0),
    ):
        if total and part > 0:
            parts.append(_rect(kind, min(1.0, part / total), top, 8 - top))
    return element(
        "svg",
        *parts,
        viewBox="0 0 1000 8",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
    )


def _rect(kind: str, part: float, top: int, height: int) -> Markup:
    # What is there at all can be seen.
    width = max(4, round(1000 * part))
    return element("rect", x=0, y=top, width=width, height=height, class_=kind)


def _table(containers: Sequence[ContainerUse]) -> Markup:
    head = element("thead", element("tr", *(element("th", each, scope="col") for each in _COLUMNS)))
    return element("table", head, element("tbody", joined(*(_row(each) for each in containers))))


def _row(each: ContainerUse) -> Markup:
    who, use = each.container, each.use
    limit = use.limit_bytes if use.limit_bytes is not None else each.allocated.memory_mib * _MIB
    name = element(
        "th", f"{who.namespace}/{who.pod}", element("div", who.name, class_="soft"), scope="row"
    )
    if use.held is None:
        used: list[str] = [f"unknown of {_size(limit)}"]
    else:
        total = use.held.total_bytes
        is_full = bool(limit) and total >= _NEARLY * limit
        said = f"{_size(total)} of {_size(limit)}"
        used = [said, _drawing(said, 0, total, limit, warn=is_full)]
    if use.counted and use.counted.refusals:
        used.append(
            element("div", f"{_counted(use.counted.refusals, 'allocation')} refused", class_="warn")
        )
    cores = f"{each.allocated.cores} %" if each.allocated.cores else "no limit"
    busy = "not measured" if use.percent is None else f"{use.percent:.0f} %"
    return element(
        "tr",
        name,
        element("td", *used, data_what=_COLUMNS[1]),
        element("td", cores, data_what=_COLUMNS[2]),
        element("td", busy, data_what=_COLUMNS[3]),
    )


def _elsewhere(snapshot: Snapshot) -> Markup:
    """Show the containers whose card is not among those of the node now."""
    known = {use.card.uuid for use in snapshot.cards}
    lost = [each for each in snapshot.containers if each.uuid not in known]
    if lost:
        head = element("header", element("h2", "Cards that cannot be found now"))
        return element("section", head, _table(lost), class_="card")
    if snapshot.cards or _are_cards_unknown(snapshot):
        return Markup()
    return element("p", "This node has no cards.", class_="soft")


def _footer(now: datetime, *, is_still: bool) -> Markup:
    other = ("./", "look again") if is_still else (f"?{STILL}", "stop that")
    return element(
        "footer",
        f"{now:%Y-%m-%d %H:%M:%S} UTC{'' if is_still else f', again every {RELOAD_S} s'} (",
        element("a", other[1], href=other[0]),
        "). The same for Prometheus: ",
        element("a", "metrics", href="metrics"),
        f". hami-dra {__version__}",
    )


def _size(count: int) -> str:
    """Write an amount of memory in the unit in which it was asked for, with its thousands apart."""
    return f"{count / _MIB:,.0f} MiB".replace(",", " ")
