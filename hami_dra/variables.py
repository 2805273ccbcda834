"""Settings from environment and flags, with the standard library alone.

What runs on every node must be back within a second, and the models that read the webhook's
settings take a third of an agent's memory and of its start. A settings class is a frozen dataclass
whose fields are annotated with what they mean.
"""

import argparse
import dataclasses
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, get_type_hints

Reader = Callable[[str], object]
"""Read a value that a person wrote.

Raises:
    ValueError: if it is none; the text says what is expected.
"""


class SettingsError(ValueError):
    """A setting is missing or wrong; the text names it and what is expected."""


@dataclass(frozen=True, slots=True)
class Described:
    """Says of a setting how its text is read, what it means, and what it is when nobody sets it."""

    read: Reader
    meaning: str
    default: object = None

    @property
    def help(self) -> str:
        """Return what it means, with its default unless the text says it or there is none."""
        if self.default in (None, "", dataclasses.MISSING) or "Default:" in self.meaning:
            return self.meaning
        return f"{self.meaning} [default: {_written(self.default)}]"


def fields(settings: type) -> Mapping[str, Described]:
    """Return what can be set of a class of settings, by name."""
    hints = get_type_hints(settings, include_extras=True)
    return {
        field.name: dataclasses.replace(hints[field.name].__metadata__[0], default=field.default)
        for field in dataclasses.fields(settings)
    }


def _written(value: object) -> str:
    """Return a value as a person would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.name.lower() if isinstance(value, IntEnum) else str(value)


def read_values(
    described: Mapping[str, Described],
    prefixes: Sequence[str],
    environ: Mapping[str, str],
    flags: Mapping[str, str],
) -> dict[str, Any]:
    """Read what is set by flags, or else by the environment; an empty variable counts as unset.

    Args:
        described: what can be set.
        prefixes: of variables, the one that wins first.
        environ: the variables.
        flags: by name.

    Raises:
        SettingsError: if a value is wrong, or there is no `name`.
    """
    values: dict[str, Any] = {}
    for name, setting in described.items():
        variables = (environ.get(f"{prefix}{name.upper()}") for prefix in prefixes)
        text = flags.get(name, next(filter(None, variables), None))
        if text is None:
            continue
        try:
            values[name] = setting.read(text)
        except ValueError as error:
            raise SettingsError(f"{name}: found {text!r:.200}, {error}") from None
    if "name" not in values:
        raise SettingsError(f"name: found none, expected --name or {prefixes[0]}NAME")
    return values


def add_flags(
    parser: argparse.ArgumentParser,
    described: Mapping[str, Described],
    prefix: str,
    *,
    switches: Collection[str] = (),
) -> None:
    """Make a flag of each setting; its help names the variable too.

    Args:
        parser: gets the flags.
        described: the settings.
        prefix: of the variables.
        switches: flags that mean true where no value follows.
    """
    for name, what in described.items():
        flag, variable = f"--{name.replace('_', '-')}", f"{prefix}{name.upper()}"
        text = f"{what.help} [env: {variable}]"
        if flag in switches:
            parser.add_argument(flag, metavar="VALUE", nargs="?", const="true", help=text)
        else:
            parser.add_argument(flag, metavar="VALUE", help=text)


def number(least: int, most: int) -> Reader:
    """Read a whole number within bounds."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise ValueError(f"expected a number from {least} to {most}")
        return int(text)

    return read


def choice(kind: type[StrEnum]) -> Reader:
    """Read one of a few words."""

    def read(text: str) -> StrEnum:
        if text not in set(kind):
            raise ValueError(f"expected one of {', '.join(kind)}")
        return kind(text)

    return read


def absolute(text: str) -> Path:
    """Read a path that others are told too."""
    path = Path(text)
    if not path.is_absolute():
        raise ValueError(
            "expected an absolute path: kubelet and container runtime are told the same ones"
        )
    return path


def object_name(text: str) -> str:
    """Read the name of an object."""
    if not 0 < len(text) <= 253:  # noqa: PLR2004 - of any object
        raise ValueError("expected 1 to 253 characters")
    return text


def switch(text: str) -> bool:
    """Read whether something is on."""
    if text not in {"true", "false"}:
        raise ValueError("expected true or false")
    return text == "true"


def level(text: str) -> str:
    """Read the least severe level that is logged."""
    if text not in {"debug", "info", "warning", "error"}:
        raise ValueError("expected one of debug, info, warning, error")
    return text
