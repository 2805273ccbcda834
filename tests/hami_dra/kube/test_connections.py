"""A session takes its connections along, whatever the server does with theirs."""

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest
import uvloop

from hami_dra.kube import incluster
from hami_dra.kube.session import Session
from hami_dra.lab import pki
from hami_dra.lab.ports import LOOPBACK

_EVENT: Final = b'{"type": "ADDED", "object": {}}\n'
_HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_BEGINNING: Final = _HEAD + b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_LATE: Final = "/after-a-request"


@dataclass
class Frozen:
    """A server that shakes hands, begins to answer a watch, and never reads again.

    So it neither answers other requests nor says goodbye when its clients do. One watch it begins
    to answer only when something else was asked.

    Attributes:
        port: where it listens.
        kubeconfig: leads to it.
        account: of a pod that is led to it.
    """

    port: int
    kubeconfig: Path
    account: Path

    async def by_kubeconfig(self) -> Session:
        """Return a session as a person has it."""
        return await Session.connect(self.kubeconfig)

    async def as_pod(self) -> Session:
        """Return a session as a pod has it."""
        environment = {
            "KUBERNETES_SERVICE_HOST": LOOPBACK,
            "KUBERNETES_SERVICE_PORT": str(self.port),
        }
        return await incluster.connect(environment, self.account)


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Frozen]:
    issuer = pki.create_issuer(datetime.now(UTC))
    serving = issuer.server("frozen", ip_addresses=(LOOPBACK,))
    ca = issuer.authority.certificate_pem
    for name, content in (
        ("tls.crt", serving.certificate_pem),
        ("tls.key", serving.key_pem),
        ("ca.crt", ca),
        ("token", b"t"),
    ):
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    with _listening(context) as port:
        kubeconfig = tmp_path / "kubeconfig"
        pki.write_kubeconfig(kubeconfig, pki.kubeconfig(f"https://{LOOPBACK}:{port}", ca, "t"))
        yield Frozen(port, kubeconfig, tmp_path)


class _Lines:
    """The server's ends of its connections."""

    def __init__(self) -> None:
        self._held: list[ssl.SSLSocket] = []
        self._late: list[ssl.SSLSocket] = []
        self._is_asked = False

    def meet(self, line: ssl.SSLSocket) -> None:
        """Hear what a client asks first, and begin to answer watches."""
        self._held.append(line)
        asked = line.recv(65536)
        if b"watch=true" not in asked:
            self._is_asked = True
        elif _LATE.encode() in asked:
            self._late.append(line)
        else:
            line.sendall(_BEGINNING)
        while self._is_asked and self._late:
            self._late.pop().sendall(_BEGINNING)

    def close(self) -> None:
        """Let go of all."""
        for line in self._held:
            line.close()


@contextmanager
def _listening(context: ssl.SSLContext) -> Iterator[int]:
    is_over = threading.Event()

    def serve() -> None:
        while True:
            raw, _ = listener.accept()
            if is_over.is_set():
                raw.close()
                return
            # Clients that leave in the middle are what this is about.
            with contextlib.suppress(OSError):
                lines.meet(context.wrap_socket(raw, server_side=True))

    with closing(_Lines()) as lines, closing(socket.create_server((LOOPBACK, 0))) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=serve, name="frozen")
        thread.start()
        try:
            yield port
        finally:
            is_over.set()
            socket.create_connection((LOOPBACK, port)).close()
            thread.join()


async def leave_a_watch(session: Session, path: str = "/x") -> None:
    async with aclosing(session.watch(path, resource_version="1")) as events:
        await anext(events)


async def cancel_a_watch(session: Session) -> None:
    """As a task that follows a collection is ended: in the middle of the wait for an event."""
    followed = asyncio.Event()

    async def follow() -> None:
        async with aclosing(session.watch("/x", resource_version="1")) as events:
            async for _ in events:
                followed.set()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(follow())
        await followed.wait()
        task.cancel()


async def drop_a_watch(session: Session) -> None:
    """Without a word; the loop finds the stream later."""
    await anext(session.watch("/x", resource_version="1"))


async def cancel_a_request(session: Session) -> None:
    sent = asyncio.create_task(session.get("/x"))
    await leave_a_watch(session, _LATE)
    sent.cancel()
    await asyncio.gather(sent, return_exceptions=True)


async def leave_a_request(session: Session) -> None:
    """The session ends while somebody still waits for an answer."""
    sent = asyncio.create_task(session.get("/x"))
    await leave_a_watch(session, _LATE)
    await session.close()
    await asyncio.gather(sent, return_exceptions=True)


@pytest.mark.parametrize("kind", [Frozen.by_kubeconfig, Frozen.as_pod])
@pytest.mark.parametrize(
    "act", [leave_a_watch, cancel_a_watch, drop_a_watch, cancel_a_request, leave_a_request]
)
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_no_connection_outlives_its_session(
    frozen: Frozen,
    kind: Callable[[Frozen], Awaitable[Session]],
    act: Callable[[Session], Awaitable[None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def work() -> None:
        async with await kind(frozen) as session:
            await act(session)

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(work())
        gc.collect()

    assert [str(each.message) for each in found] == []
