"""Spans of time as people write them: `7d`, `12h`, `1h30m`."""

import re
from datetime import timedelta
from typing import Final

import typer

_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PART: Final = re.compile(r"([0-9]{1,9})([wdhms])")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def duration(text: str) -> timedelta:
    """Read a span of time; a command's parser.

    Raises:
        BadParameter: if it is none.
    """
    if not _WHOLE.fullmatch(text):
        raise typer.BadParameter(
            f"found {text!r}, expected a span such as 7d, 12h or 30m; 0s is any age"
        )
    seconds = sum(int(amount) * _SECONDS[unit] for amount, unit in _PART.findall(text))
    try:
        return timedelta(seconds=seconds)
    except OverflowError as error:
        raise typer.BadParameter(
            f"found {text!r}, expected at most {timedelta.max.days}d"
        ) from error
