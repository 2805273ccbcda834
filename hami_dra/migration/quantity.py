"""Kubernetes quantities, read as strictly and as oddly as the API server reads them.

Why our own: `kubernetes.utils.parse_quantity` accepts `NaN`, `1_000`, `1K` and Arabic digits, which
no API server does, and refuses `1.` and `k`, which every API server accepts.
Grammar: k8s.io/apimachinery/pkg/api/resource, measured in the oracle's `spelling` group.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

NANO: Final = 10**9
"""The smallest unit that Kubernetes keeps; smaller amounts are rounded away from zero to it."""

_LARGEST: Final = (2**63 - 1) * NANO
_LONGEST_TEXT: Final = 512  # beyond any honest spelling, below Python's limit on digits
_LARGEST_EXPONENT: Final = 64  # beyond it every amount is capped or rounded to one nano

_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

_FORM: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:[eE](?P<exponent>[+-]?[0-9]+)|(?P<suffix>[numkMGTPE]|[KMGTPE]i|))",
)


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount, in nano units as Kubernetes stores it.

    Attributes:
        nanos: the amount times 10^9.
        text: how it was written, for messages.
    """

    nanos: int
    text: str = field(default="", compare=False)

    @property
    def is_integer(self) -> bool:
        """Tell whether the amount is a whole number."""
        return self.nanos % NANO == 0

    @property
    def integer(self) -> int:
        """Return the amount as an integer.

        Raises:
            QuantityError: if it has a fraction.
        """
        if not self.is_integer:
            raise QuantityError(f"found {self}, expected a whole number")
        return self.nanos // NANO

    def __str__(self) -> str:
        """Render as it was written, for messages."""
        return self.text or self.canonical

    @property
    def canonical(self) -> str:
        """Return the amount as a plain decimal number, equal for equal amounts."""
        sign = "-" if self.nanos < 0 else ""
        whole, nanos = divmod(abs(self.nanos), NANO)
        return f"{sign}{whole}" if not nanos else f"{sign}{whole}.{nanos:09d}".rstrip("0")


def parse(value: object) -> Quantity:
    """Read a quantity as it stands in JSON or YAML: a string, a number or null (which is zero).

    Raises:
        QuantityError: if the API server would refuse it.
    """
    if value is None:
        return Quantity(0)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise QuantityError(f"found {type(value).__name__}, expected a quantity such as 1 or 8k")
    # Only spaces: JSON writes other white space as escapes, which the API server does not decode.
    return _parse_text(str(value).strip(" "))


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> Quantity:
    match = _FORM.fullmatch(text) if text and len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(
            f"found {text[:60]!r}, expected a quantity: digits, then optionally one of"
            " m k M G T P E Ki Mi Gi Ti Pi Ei or an exponent such as e3",
        )
    part = match["part"] or ""
    digits = int((match["whole"] + part) or "0")
    negative = match["sign"] == "-"
    nanos = _scale(digits, match["exponent"], match["suffix"] or "", len(part))
    return Quantity(-nanos if negative else nanos, text)


def _scale(digits: int, exponent: str | None, suffix: str, places: int) -> int:
    """Turn digits, their decimal places and a suffix into nanos, rounded up and capped."""
    power = int(exponent) if exponent is not None else _DECIMAL.get(suffix, 0)
    power = max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, power)) + 9
    scaled: int = (digits << _BINARY.get(suffix, 0)) * 10 ** max(power, 0)
    divisor: int = 10 ** (places + max(-power, 0))
    return min(-(-scaled // divisor), _LARGEST)
