"""A text as documents, each with the separator before it, character for character."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hami_dra.cli.sources import UnreadableError
from hami_dra.yaml_edit import Document as Parsed
from hami_dra.yaml_edit import SyntaxProblem, parse

SEPARATORS: Final = ("---", "...")
"""How a line begins that starts or ends a document."""

_SEPARATOR: Final = re.compile(r"^(?:---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)
_REST_OF_LINE: Final = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r?\n|\Z)")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()
_BOM: Final = "\ufeff"
_TEMPLATING: Final = ("{{", "{%")


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML or JSON document.

    Attributes:
        source: the input's name.
        line: the number of its first line.
        lead: what stands before it: a separator with its comment, a byte order mark, or both.
        text: the document itself.
        is_bare: whether it is JSON among nothing but JSON, which kubectl reads without separators
            and, on one line, not with them.
    """

    source: str
    line: int
    lead: str
    text: str
    is_bare: bool = False

    @property
    def is_behind(self) -> bool:
        """Tell whether it starts behind its separator, in the same line."""
        return self.lead.startswith(SEPARATORS) and not self.lead.endswith(("\n", _BOM))

    @property
    def where(self) -> str:
        """Return file and line, for messages."""
        return f"{self.source}:{self.line}"

    def parsed(self) -> Parsed:
        """Parse it.

        Raises:
            UnreadableError: if it is neither YAML nor JSON, with line and column.
        """
        try:
            return parse(self.text)
        except SyntaxProblem as problem:
            # A document that goes on behind its `---` starts in the line before.
            line = self.line + problem.line - 1
            hint = ""
            if any(mark in self.text for mark in _TEMPLATING):
                hint = "; this looks like a template, render it first: helm template … | hami-dra"
                hint += " convert -f -"
            raise UnreadableError(
                f"{self.source}:{line}:{problem.column}: {problem.reason}{hint}"
            ) from problem


def split(source: str, text: str) -> Iterator[Document]:
    """Cut a text into documents; put together again they are the text."""
    bom = _BOM if text.startswith(_BOM) else ""
    if starts := _json_starts(text, len(bom)):
        line, before = 1, 0
        for at, (start, end) in enumerate(zip(starts, [*starts[1:], len(text)], strict=True)):
            line += text.count("\n", before, start)
            before = start
            yield Document(source, line, "" if at else bom, text[start:end], is_bare=True)
        return
    start, lead, line = len(bom), bom, 1
    for match in _SEPARATOR.finditer(text, start):
        yield from _document(source, line, lead, text[start : match.start()])
        rest = _REST_OF_LINE.match(text, match.end())
        end = rest.end() if rest else match.end()
        line += text.count("\n", start, end)
        # Files with a mark each, put together: YAML allows it before any document.
        end += len(_BOM) if text.startswith(_BOM, end) else 0
        start, lead = end, text[match.start() : end]
    yield from _document(source, line, lead, text[start:])


def _document(source: str, line: int, lead: str, text: str) -> Iterator[Document]:
    if lead or text:
        yield Document(source=source, line=line, lead=lead, text=text)


def _json_starts(text: str, start: int) -> list[int]:
    """Return where the objects of a stream of JSON start; none for anything else."""
    found: list[int] = []
    at = _after_space(text, start)
    while at < len(text):
        if text[at] != "{":
            return []
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        found.append(at if found else start)
        at = _after_space(text, end)
    return found


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
