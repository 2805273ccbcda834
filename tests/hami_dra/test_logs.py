"""A line carries its fields, for machines and for people."""

import io
import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.logs import LogFormat, configure, write


@pytest.fixture(autouse=True)
def _no_other_handler() -> None:
    # `restored_logging` takes this back as well.
    logging.getLogger().handlers = []


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


names = st.text().filter(lambda name: name not in {"time", "level", "logger", "message"})


@given(
    fields=st.dictionaries(
        names, st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.text())
    )
)
def test_the_short_way_writes_the_line_of_the_long_one(fields: dict[str, Any]) -> None:
    stream = io.StringIO()
    configure(LogFormat.JSON, "info", stream)
    logger = logging.getLogger("x")

    write(logger, logging.INFO, "review", fields)
    logger.info("review", extra={"fields": fields})

    short, long = map(json.loads, stream.getvalue().splitlines())
    assert short.pop("time") <= long.pop("time")
    assert short == long == {"level": "info", "logger": "x", "message": "review", **fields}


def test_the_time_is_the_records(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogFormat.JSON, "info", sys.stderr)
    for created in (0.25, 1_800_000_000.999, 1_800_000_000.001, 0.25):
        record = logging.makeLogRecord({"created": created, "levelno": 20, "name": "x"})
        logging.getLogger().handle(record)

    times = [json.loads(line)["time"] for line in capsys.readouterr().err.splitlines()]
    assert times == [
        "1970-01-01T00:00:00.250+00:00",
        "2027-01-15T08:00:00.999+00:00",
        "2027-01-15T08:00:00.001+00:00",
        "1970-01-01T00:00:00.250+00:00",
    ]


def test_who_else_listens_hears_of_it_too(caplog: pytest.LogCaptureFixture) -> None:
    configure(LogFormat.JSON, "info", io.StringIO())
    logging.getLogger().addHandler(caplog.handler)

    write(logging.getLogger("x"), logging.INFO, "review", {"uid": "u"})
    write(logging.getLogger("x"), logging.DEBUG, "too fine", {})

    assert [record.__dict__["fields"] for record in caplog.records] == [{"uid": "u"}]


def test_a_stream_that_takes_nothing_fails_nobody() -> None:
    stream = io.StringIO()
    configure(LogFormat.JSON, "info", stream)
    stream.close()

    write(logging.getLogger("x"), logging.INFO, "review", {})
