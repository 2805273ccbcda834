"""Logging for machines in a cluster and for people at a terminal, with the standard library alone.

A record's `fields` (passed as `extra={"fields": {...}}`) become keys of the line.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO


class LogFormat(StrEnum):
    """How lines look."""

    JSON = "json"
    TEXT = "text"
    AUTO = "auto"


def configure(form: LogFormat, level: str, stream: TextIO) -> None:
    """Send everything to a stream; `auto` means text on a terminal and JSON elsewhere."""
    is_text = stream.isatty() if form is LogFormat.AUTO else form is LogFormat.TEXT
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Render a record."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=_plain)


class TextFormatter(logging.Formatter):
    """Time, level, message and the fields as `key=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """Render a record without its exception."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        pairs = (f"{name}={json.dumps(value, default=_plain)}" for name, value in fields.items())
        return " ".join((super().formatMessage(record), *pairs))


def _plain(value: object) -> object:
    """Render what JSON has no form for."""
    return dict(value) if isinstance(value, Mapping) else str(value)
