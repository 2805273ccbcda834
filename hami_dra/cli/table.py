"""Rows with aligned columns, as kubectl prints them."""

from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], *, gap: str = "   ") -> str:
    """Align columns; the first row is the head. No row has fewer cells than the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)
