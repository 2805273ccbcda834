"""Logging for machines in a cluster and for people at a terminal, with the standard library alone.

A record's `fields` (passed as `extra={"fields": {...}}`) become keys of the line.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from enum import StrEnum
from json.encoder import encode_basestring_ascii as _quoted
from time import time
from typing import Any, Final, TextIO


class LogFormat(StrEnum):
    """How lines look."""

    JSON = "json"
    TEXT = "text"
    AUTO = "auto"


def configure(form: LogFormat, level: str, stream: TextIO) -> None:
    """Send everything to a stream; `auto` means text on a terminal and JSON elsewhere."""
    is_text = stream.isatty() if form is LogFormat.AUTO else form is LogFormat.TEXT
    handler = logging.StreamHandler(stream) if is_text else JsonHandler(stream)
    if is_text:
        handler.setFormatter(TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def write(logger: logging.Logger, level: int, message: str, fields: Mapping[str, Any]) -> None:
    """Log a message with fields, by the short way where JSON goes to a stream and nowhere else.

    A record, the search for its caller and its way through the library take as long as reading the
    review that is logged. The line is the same.
    """
    if not logger.isEnabledFor(level):
        return
    handlers = logging.getLogger().handlers
    if len(handlers) == 1 and isinstance(handlers[0], JsonHandler) and not logger.handlers:
        handlers[0].write(level, logger.name, message, fields)
    else:
        logger.log(level, message, extra={"fields": fields})


class JsonHandler(logging.StreamHandler[TextIO]):
    """Writes one JSON object a line, from records or without one."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._exceptions = logging.Formatter()
        self._second = -1
        self._date = ""

    def write(self, level: int, logger: str, message: str, fields: Mapping[str, Any]) -> None:
        """Write what is logged now."""
        line = self._line(time(), level, logger, message, fields)
        # Who answers a review must not fail because nobody reads of it.
        with self.lock or nullcontext(), suppress(OSError, ValueError):
            self.stream.write(f"{line}{self.terminator}")
            self.flush()

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["exception"] = self._exceptions.formatException(record.exc_info)
        return self._line(record.created, record.levelno, record.name, record.getMessage(), fields)

    def _line(
        self, created: float, level: int, logger: str, message: str, fields: Mapping[str, Any]
    ) -> str:
        second, milliseconds = divmod(int(created * 1000), 1000)
        if second != self._second:
            self._second = second
            self._date = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        head = (
            f'{{"time": "{self._date}.{milliseconds:03}+00:00",'
            f' "level": "{logging.getLevelName(level).lower()}",'
            f' "logger": {_quoted(logger)}, "message": {_quoted(message)}'
        )
        # One call for all fields; each call of the encoder costs more than a field does.
        return f"{head}, {_ENCODER.encode(fields)[1:]}" if fields else f"{head}}}"


class TextFormatter(logging.Formatter):
    """Time, level, message and the fields as `key=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Render a record without its exception."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        pairs = (f"{name}={_ENCODER.encode(value)}" for name, value in fields.items())
        return " ".join((super().formatMessage(record), *pairs))


def _plain(value: object) -> object:
    """Render what JSON has no form for."""
    return dict(value) if isinstance(value, Mapping) else str(value)


# `json.dumps` builds one of these at each call, which takes longer than the encoding.
_ENCODER: Final = json.JSONEncoder(default=_plain)
