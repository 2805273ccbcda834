"""Write HTML that is XML as well: whatever is text is escaped, and only what we wrote is markup."""

from html import escape

from hami_dra.plain import plain

_VOID = frozenset({"meta", "br"})


class Markup(str):
    """Text that is markup already; it came from `element`."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | int) -> Markup:
    """Return an element; children that are no markup, and all attributes, are escaped.

    Args:
        name: of the element.
        *children: what is in it.
        **attributes: `class_` is `class`, `aria_label` is `aria-label`.
    """
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for key, value in attributes.items()
    )
    inner = "".join(each if isinstance(each, Markup) else _escaped(each) for each in children)
    if not inner and name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{inner}</{name}>")


def joined(*parts: str) -> Markup:
    """Return elements one after the other, each on its line."""
    return Markup("\n".join(part for part in parts if part))


def table(caption: str, head: list[str], rows: list[list[str]], *, numbers: int = 0) -> Markup:
    """Return a table; the first cell of each row is its header.

    Args:
        caption: what it shows.
        head: titles of the columns.
        rows: cells, as text or markup.
        numbers: from which column on cells are numbers; 0 for none.
    """

    def cell(name: str, text: str, column: int, **more: str) -> Markup:
        is_number = numbers and column >= numbers
        return element(name, text, **({"class_": "number"} if is_number else {}), **more)

    titles = (cell("th", text, column, scope="col") for column, text in enumerate(head))
    lines = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(cell("td", text, column) for column, text in enumerate(row) if column),
        )
        for row in rows
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *titles)),
        element("tbody", joined(*lines)),
    )
    # On a small screen it scrolls by itself; whoever has no mouse can reach it.
    return element("div", whole, class_="scrolls", role="region", aria_label=caption, tabindex="0")


def _escaped(text: str) -> str:
    return escape(plain(text))
