"""Tell from the bytes alone that a text says nothing of interest, so that it need not be parsed.

A false alarm costs a parse. A miss would pass a legacy manifest through without a word, so every
way to spell a name is looked at: as it is, with escapes in double quotes, and with tags.
"""

import re
from collections.abc import Iterable
from typing import Final

# Of all escapes in double quotes only these make characters that stand in resource names.
_ESCAPE: Final = re.compile(rb"\\[/xuU\r\n\xc2\xe2]")
_PAIR: Final = re.compile(
    rb"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})"
    rb"|((?:\r\n|[\r\n]|\xc2\x85|\xe2\x80[\xa8\xa9])[ \t]*)|(.))",
    re.DOTALL,
)
_CODED: Final = (b"!!binary", b"2002:", b"!<", b"%TAG")
"""Tags under which text can be base64, and what renames tags."""


class Scanner:
    """Looks for names.

    Args:
        names: what to look for, in ASCII.
    """

    def __init__(self, names: Iterable[str]) -> None:
        wanted = sorted({name.encode() for name in names if name}, key=len)
        # A name that contains another one is found with it.
        self._names = [
            name for i, name in enumerate(wanted) if not any(o in name for o in wanted[:i])
        ]

    def finds(self, data: bytes) -> bool:
        """Tell whether a document's bytes may say one of the names."""
        if any(name in data for name in self._names):
            return True
        if any(code in data for code in _CODED):
            return True
        if b"\\" not in data or _ESCAPE.search(data) is None:
            return False
        spelled = _PAIR.sub(_plain, data)
        return any(name in spelled for name in self._names)


def _plain(match: re.Match[bytes]) -> bytes:
    code = match[1] or match[2] or match[3]
    if code:
        number = int(code, 16)
        return bytes((number,)) if number < 1 << 7 else b"?"
    if match[4]:
        return b""
    return match[5] if match[5] == b"/" else b"?" + match[5]
