"""Who asks over HTTP gets pages and metrics, and cannot hold up others."""

import contextlib
import gzip
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from prometheus_client import CollectorRegistry, Gauge

from hami_dra.lab.wait import until
from hami_dra.monitor.metrics import NodeCollector
from hami_dra.monitor.pages import Pages
from hami_dra.node.probes import Probes
from hami_dra.serving import Server
from tests.hami_dra.monitor.world import World, series

LOOPBACK = "127.0.0.1"


@pytest.fixture
def problems() -> dict[str, str]:
    return {"cards": "", "claims": ""}


@pytest.fixture
def pages(problems: dict[str, str]) -> Pages:
    registry = CollectorRegistry()
    Gauge("some", "Text.", registry=registry).set(3)
    return Pages(registry, lambda _: "<p>page</p>", lambda: problems)


@contextmanager
def serving(pages: Pages, *, request_s: float = 60, connections: int = 4) -> Iterator[Server]:
    server = Server(LOOPBACK, 0, pages, request_s=request_s, connections=connections)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        until(lambda: answering() == 0, what="every client was left")


@pytest.fixture
def looker_port(world: World, problems: dict[str, str]) -> Iterator[int]:
    registry = CollectorRegistry()
    registry.register(NodeCollector(world.looker))
    with serving(Pages(registry, str, lambda: problems)) as server:
        yield server.port


@pytest.fixture
def port(pages: Pages) -> Iterator[int]:
    with serving(pages) as server:
        yield server.port


def asked(
    port: int, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection(LOOPBACK, port, timeout=30)) as connection:
        connection.request(
            method, path, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_metrics_come_in_every_form_that_prometheus_asks_for(port: int) -> None:
    status, headers, body = asked(port, "/metrics")
    assert (status, body.decode().splitlines()[-1]) == (200, "some 3.0")
    assert headers["Content-Type"].startswith("text/plain")

    _, headers, body = asked(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["Content-Type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")

    _, headers, body = asked(port, "/metrics", Accept_Encoding="gzip")
    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body).endswith(b"some 3.0\n")


@pytest.mark.parametrize("server", ["monitor", "agent"])
def test_what_cannot_be_understood_of_a_scrape_is_passed_over_without_a_word(
    server: str, port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever reaches the port could otherwise fill the node's log."""
    registry = CollectorRegistry()
    Gauge("some", "Text.", registry=registry).set(3)
    probes = Probes(LOOPBACK, 0, alive=dict, ready=dict, registry=registry)
    probes.start()
    asks = probes.port if server == "agent" else port
    try:
        for accepted in (
            "application/openmetrics-text; version=x",
            "text/plain;version=1.x",
            "\xff",
        ):
            status, headers, body = asked(asks, "/metrics", Accept=accepted)
            assert (status, body.decode().splitlines()[-1]) == (200, "some 3.0")
            assert headers["Content-Type"].startswith("text/plain")
    finally:
        probes.stop()
    assert capfd.readouterr().err == ""


def test_all_is_shown_whatever_is_asked_for(looker_port: int) -> None:
    """As HAMi does; a collector that looks does not know the names of what it will find."""
    text = asked(looker_port, "/metrics?name[]=hami_gpu_shared_count")[2].decode()

    assert series(text, "hami_gpu_shared_count")


def test_the_page_runs_nothing_and_loads_nothing(port: int) -> None:
    status, headers, body = asked(port, "/")

    assert (status, body) == (200, b"<p>page</p>")
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz", "/readyz"])
def test_head_answers_as_get_without_a_body(port: int, path: str) -> None:
    status, headers, body = asked(port, path, "HEAD")

    assert (status, body) == (200, b"")
    assert headers["Content-Length"] == str(len(asked(port, path)[2]))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_written(port: int, method: str) -> None:
    status, headers, _ = asked(port, "/metrics", method)

    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/metrics/", "/..", "/favicon.ico", "/%00"])
def test_other_paths_do_not_exist(port: int, path: str) -> None:
    assert asked(port, path)[0] == 404


def test_readiness_tells_what_fails_and_stays(port: int, problems: dict[str, str]) -> None:
    """Otherwise one broken source would hide the others, and the counter of its errors."""
    assert asked(port, "/readyz")[2] == b'{"ok": true}'

    problems["cards"] = "NVML does not answer"

    status, _, body = asked(port, "/readyz")
    assert (status, body) == (200, b'{"ok": false, "cards": "NVML does not answer"}')


def test_a_request_that_does_not_come_is_not_waited_for(pages: Pages) -> None:
    """Neither silence nor one byte after the other holds a thread beyond the whole deadline."""
    with (
        serving(pages, request_s=2) as server,
        socket.create_connection((LOOPBACK, server.port)) as silent,
        socket.create_connection((LOOPBACK, server.port)) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\nA: ")
        for each in (silent, slow):
            each.settimeout(30)
            assert each.recv(1) == b""


def test_a_head_without_end_is_turned_away(port: int) -> None:
    with (
        socket.create_connection((LOOPBACK, port), timeout=30) as endless,
        # Which of the two notices first varies.
        contextlib.suppress(ConnectionError),
    ):
        endless.sendall(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 10_000)
        assert endless.recv(1) == b""


def test_there_are_no_more_threads_than_connections(pages: Pages) -> None:
    """One more takes the place of the one that has been silent for longest."""
    with serving(pages, connections=2) as server, contextlib.ExitStack() as stack:
        first, second = (connected(stack, server) for _ in range(2))
        until(lambda: answering() == 2, what="both are waited for")
        third = connected(stack, server)
        assert first.recv(1) == b""
        until(lambda: answering() == 2, what="the third is waited for in its place")
        for each in (second, third):
            assert answered(each), "the others are not ended"
        until(lambda: answering() == 0, what="there is room again")


@pytest.mark.parametrize("asks", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_clients_that_hold_every_connection_keep_nobody_from_an_answer(
    problems: dict[str, str], asks: bytes
) -> None:
    """A kubelet whose probe gets no answer restarts the container, and an agent with it."""
    pages = Pages(CollectorRegistry(), lambda _: "x" * (16 * 2**20), lambda: problems)
    with (
        serving(pages, request_s=3600, connections=3) as server,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(3):
            connected(stack, server).sendall(asks)
        until(lambda: answering() == 3, what="all are waited for")

        for _ in range(5):
            assert asked(server.port, "/healthz")[0] == 200
        for _ in range(30):
            connected(stack, server).sendall(asks)
        assert asked(server.port, "/healthz")[0] == 200


def test_silence_goes_before_who_waits_for_an_answer(problems: dict[str, str]) -> None:
    """A scrape takes its time; what holds a connection and asks for nothing needs none."""
    looking, go_on = threading.Event(), threading.Event()

    def page(_: str) -> str:
        looking.set()
        go_on.wait()
        return "page"

    pages = Pages(CollectorRegistry(), page, lambda: problems)
    with serving(pages, connections=2) as server, contextlib.ExitStack() as stack:
        waiting = connected(stack, server)
        waiting.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        looking.wait()
        silent = connected(stack, server)

        status, _, _ = asked(server.port, "/healthz")
        go_on.set()

        assert status == 200
        assert silent.recv(1) == b""
        assert waiting.recv(12) == b"HTTP/1.0 200"


def answering() -> int:
    """Count the threads that answer."""
    return sum("process_request_thread" in each.name for each in threading.enumerate())


def connected(stack: contextlib.ExitStack, server: Server) -> socket.socket:
    return stack.enter_context(socket.create_connection((LOOPBACK, server.port), timeout=30))


def answered(connection: socket.socket) -> bool:
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection.recv(12) == b"HTTP/1.0 200"


def test_a_client_that_does_not_take_its_answer_fills_no_log(
    problems: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    pages = Pages(CollectorRegistry(), lambda _: "x" * (64 * 2**20), lambda: problems)
    with serving(pages, request_s=2) as server, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((LOOPBACK, server.port))
        slow.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        until(lambda: answering() == 1, what="it is being answered")
        until(lambda: answering() == 0, what="it was given up")

    assert capfd.readouterr().err == ""
