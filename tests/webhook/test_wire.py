"""Clients that are slow, broken or hostile get a fitting answer and cost nobody else anything."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings

from hami_dra.lab.ports import LOOPBACK
from tests.webhook.fuzz import drawn_bodies
from tests.webhook.wire import Wire, request, review_body

ERRORS = re.compile(r'^hami_dra_webhook_reviews_total\{decision="error"\} (.*)$', re.MULTILINE)


@dataclass
class Standalone:
    """A webhook process that needs no cluster.

    Attributes:
        process: the process.
        port: where it listens on loopback.
    """

    process: subprocess.Popen[str]
    port: int

    def errors(self) -> float:
        """Return how many reviews failed by its own fault."""
        with Wire.to(self.port) as wire:
            wire.say(b"GET /metrics HTTP/1.1\r\nHost: webhook\r\n\r\n")
            [count] = ERRORS.findall(wire.answer()[1].decode())
        return float(count)

    def resident_mib(self) -> float:
        """Return the memory that it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [kib] = re.findall(r"VmRSS:\s+(\d+) kB", status)
        return int(kib) / 1024


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """One process for all of it; it must end in good order and have failed at nothing."""
    log = tmp_path_factory.mktemp("webhook") / "log"
    flags = ["--standalone", "--host", "127.0.0.1", "--port", "0"]
    argv = [sys.executable, "-W", "error", "-m", "webhook", *flags]
    with (
        log.open("w") as output,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=output, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            found = Standalone(process, int(process.stdout.readline().rpartition(":")[2]))
            yield found
            assert found.errors() == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=30) == 0
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


JSON = review_body()
STRANGE = {
    "truncated JSON": (request(JSON[:-20]), 400),
    "no JSON": (request(b"hello"), 400),
    "nothing": (request(b""), 400),
    "another envelope": (request(JSON.replace(b"AdmissionReview", b"ConversionReview")), 400),
    "an envelope of before": (request(JSON.replace(b"k8s.io/v1", b"k8s.io/v1beta1")), 400),
    "a list": (request(b"[" + JSON + b"]"), 400),
    "bytes that are no text": (request(b"\xff\xfe" + JSON), 400),
    "JSON too deep to read": (request(b"[" * 100_000), 400),
    "5 MiB": (request(b" " * (5 * 2**20)), 413),
    "another content type": (
        request(JSON).replace(b"application/json", b"text/plain; charset=utf-16"),
        200,
    ),
    "chunks": (
        request(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        + b"".join(b"1\r\n%c\r\n" % byte for byte in JSON)
        + b"0\r\n\r\n",
        200,
    ),
    "HTTP/1.0": (request(JSON, version=b"HTTP/1.0"), 200),
    "an upgrade": (request(JSON, b"Connection: Upgrade", b"Upgrade: websocket"), 400),
    "an expectation": (request(JSON, b"Expect: 200-ok"), 200),
    "another method": (request(JSON).replace(b"POST", b"PATCH"), 405),
    "another path": (request(JSON).replace(b"/mutate", b"/../../etc/passwd"), 404),
    "a header of 1 MiB": (request(JSON, b"X-Long: " + b"x" * 2**20), 431),
    "100,000 headers": (request(JSON, *(b"X-Many: x" for _ in range(100_000))), 431),
    "a URL of 1 MiB": (request(JSON).replace(b"?timeout=5s", b"?" + b"x" * 2**20), 431),
    "no HTTP": (b"\x00\x01\x02 nothing of the kind\r\n\r\n", 400),
    "two lengths": (request(JSON, b"Content-Length: 3"), 400),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_strange_request_gets_the_status_that_says_what_is_strange(
    webhook: Standalone, case: str
) -> None:
    sent, expected = STRANGE[case]
    with Wire.to(webhook.port) as wire:
        wire.say(sent)

        status, _ = wire.answer()

    assert status == expected


def test_pipelined_requests_are_answered_in_order(webhook: Standalone) -> None:
    reviews = [JSON.replace(b'"u-1"', b'"u-%d"' % number) for number in range(20)]
    with Wire.to(webhook.port) as wire:
        wire.say(*(request(review) for review in reviews))

        answers = [json.loads(wire.answer()[1])["response"]["uid"] for _ in reviews]

    assert answers == [f"u-{number}" for number in range(20)]


@settings(max_examples=8, deadline=None)
@given(bodies=drawn_bodies())
def test_damaged_reviews_are_answered_on_one_connection(
    webhook: Standalone, bodies: list[bytes]
) -> None:
    with Wire.to(webhook.port) as wire:
        for body in bodies:
            wire.say(request(body))
            assert wire.answer()[0] in {200, 400}, body


def test_a_client_of_a_byte_a_second_is_answered_and_delays_nobody(webhook: Standalone) -> None:
    whole = request(JSON)
    with Wire.to(webhook.port) as slow, Wire.to(webhook.port) as quick:
        slow.say(whole[:-2])
        for place in range(len(whole) - 2, len(whole)):
            assert quick.review()["allowed"]
            assert not slow.is_closed_within(1)
            slow.say(whole[place : place + 1])

        assert slow.answer()[0] == 200


def test_clients_that_connect_and_fall_silent_take_nothing_from_others(
    webhook: Standalone,
) -> None:
    """Before the handshake, in it, after it, and in the middle of a request."""
    before = webhook.resident_mib()
    with ExitStack() as silent:
        for _ in range(300):
            silent.enter_context(socket.create_connection((LOOPBACK, webhook.port)))
        for _ in range(100):
            hello = silent.enter_context(socket.create_connection((LOOPBACK, webhook.port)))
            hello.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01")
        for _ in range(50):
            silent.enter_context(Wire.to(webhook.port))
            silent.enter_context(Wire.to(webhook.port)).say(request(JSON)[:-9])

        with Wire.to(webhook.port) as wire:
            assert wire.review()["allowed"]
        assert webhook.resident_mib() < before + 60

    with Wire.to(webhook.port) as wire:
        assert wire.review()["allowed"]


def test_memory_is_flat_however_much_is_sent(webhook: Standalone) -> None:
    """The second half of an onslaught finds the memory that the first half took."""
    hostile = [
        request(b" " * (5 * 2**20)),
        request(b"[" * 10_000),
        request(JSON, b"X-Long: " + b"x" * 2**18),
        *(request(review_body(gpu="1", gpumem=str(number))) for number in range(50)),
    ]

    def onslaught() -> float:
        for sent in hostile * 2:
            with Wire.to(webhook.port) as wire:
                wire.say(sent)
                assert wire.answer()[0] < 500
        return webhook.resident_mib()

    first = onslaught()

    assert onslaught() < first + 10
