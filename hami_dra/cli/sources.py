"""Where manifests come from: files and standard input, cut into documents as they were written."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SEPARATOR: Final = re.compile(r"^(?:---|\.\.\.)(?:[ \t].*)?(?:\r?\n|\Z)", re.MULTILINE)


class UnreadableError(Exception):
    """An input cannot be read; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML or JSON document, byte for byte.

    Attributes:
        source: the file's name, or `-` for standard input.
        line: the number of its first line.
        lead: the separator before it, as written; empty for the first.
        text: the document itself.
    """

    source: str
    line: int
    lead: str
    text: str


def read(name: str) -> list[Document]:
    """Read a file, or standard input for `-`, as documents.

    Raises:
        UnreadableError: if it is not there, not readable or not UTF-8.
    """
    return list(_split(name, read_text(name)))


def read_text(name: str) -> str:
    """Read a file, or standard input for `-`, whole.

    Raises:
        UnreadableError: if it is not there, not readable or not UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise UnreadableError(
            f"{name}: {error.strerror}; name a readable file, or - for stdin"
        ) from error
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"{name}: byte {error.start} is not UTF-8; save it as UTF-8"
        ) from error


def _split(source: str, text: str) -> Iterator[Document]:
    start, lead, line = 0, "", 1
    for match in _SEPARATOR.finditer(text):
        yield from _document(source, line, lead, text[start : match.start()])
        line += text.count("\n", start, match.end())
        start, lead = match.end(), match.group()
    yield from _document(source, line, lead, text[start:])


def _document(source: str, line: int, lead: str, text: str) -> Iterator[Document]:
    if lead or text:
        yield Document(source=source, line=line, lead=lead, text=text)
