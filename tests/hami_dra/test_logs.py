"""A line carries its fields, for machines and for people."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from hami_dra.logs import LogFormat, configure


@pytest.fixture(autouse=True)
def _restored_root() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers = []
    yield
    root.handlers, root.level = before, level


@pytest.mark.parametrize("form", [LogFormat.JSON, LogFormat.AUTO])
def test_a_machine_reads_json(form: LogFormat) -> None:
    stream = io.StringIO()
    configure(form, "info", stream)

    try:
        raise ValueError("bad")  # noqa: TRY301 - the exception is what is logged
    except ValueError:
        logging.getLogger("x").exception("a %s", "b", extra={"fields": {"uid": "u"}})
    logging.getLogger("x").debug("too fine")

    entry = json.loads(stream.getvalue())
    assert entry["message"] == "a b"
    assert (entry["level"], entry["logger"], entry["uid"]) == ("error", "x", "u")
    assert entry["exception"].endswith("ValueError: bad")
    assert entry["time"].endswith("+00:00")


def test_a_person_reads_text() -> None:
    stream = io.StringIO()
    configure(LogFormat.TEXT, "debug", stream)

    logging.getLogger("x").debug("done", extra={"fields": {"uid": "u", "n": 3}})

    assert stream.getvalue().endswith('DEBUG   done uid="u" n=3\n')
