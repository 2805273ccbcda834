"""A pod speaks to its API server with its own account, and without the large client."""

import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

import pytest
import pytest_asyncio
from aiohttp import web

from certs.authority import Usage, create_authority, issue
from hami_dra.kube import incluster
from hami_dra.kube.errors import ConfigurationError, NotFoundError, UnreachableError
from hami_dra.kube.incluster import PodClient, ServiceAccountToken, has_account
from hami_dra.kube.session import Session
from tests.hami_dra.kube.api_double import SLICES, ApiDouble

LOOPBACK = "127.0.0.1"


@pytest_asyncio.fixture
async def pod(api: ApiDouble, tmp_path: Path) -> AsyncIterator[Session]:
    token = tmp_path / "token"
    token.write_text("first\n")
    async with Session(PodClient(api.url, ServiceAccountToken(token), None)) as session:
        yield session


async def test_it_reads_writes_and_watches(api: ApiDouble, pod: Session) -> None:
    api.token = "first"
    item = {"metadata": {"name": "a"}, "spec": {"driver": "d"}}

    made = await pod.create(SLICES, item)
    assert (await pod.get(f"{SLICES}/a"))["spec"] == {"driver": "d"}
    await pod.replace(f"{SLICES}/a", {**item, "metadata": made["metadata"]})
    stream = pod.watch(SLICES, resource_version="100")
    event = await anext(stream)
    await stream.aclose()
    assert event["object"]["metadata"]["name"] == "a"
    await pod.delete(f"{SLICES}/a", options={"preconditions": {}})
    with pytest.raises(NotFoundError):
        await pod.get(f"{SLICES}/a")


async def test_a_renewed_token_is_used(
    api: ApiDouble, pod: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.token = "first"
    await pod.get(SLICES)
    (tmp_path / "token").write_text("second")
    api.token = "second"

    later = monotonic() + 61
    monkeypatch.setattr("hami_dra.kube.incluster.monotonic", lambda: later)

    await pod.get(SLICES)


async def test_a_new_authority_of_the_cluster_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent lives longer than an authority, and nobody restarts it for a new one."""
    now = datetime.now(UTC)
    old, new = (
        create_authority(name, now=now, lifetime=timedelta(days=9)) for name in ("old", "new")
    )
    leaf = issue(
        new,
        common_name="api",
        usages=[Usage.SERVER],
        now=now,
        lifetime=timedelta(days=1),
        ip_addresses=[LOOPBACK],
    )
    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_bytes(old.certificate_pem)
    (tmp_path / "leaf.crt").write_bytes(leaf.certificate_pem)
    (tmp_path / "leaf.key").write_bytes(leaf.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "leaf.crt", tmp_path / "leaf.key")

    async def answer(_: web.BaseRequest) -> web.Response:
        return web.json_response({})

    async with web_server(answer, context) as port:
        environ = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": str(port)}
        async with await incluster.connect(environ, tmp_path) as session:
            with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
                await session.get("/")
            (tmp_path / "ca.crt").write_bytes(new.certificate_pem)
            later = monotonic() + 61
            monkeypatch.setattr("hami_dra.kube.incluster.monotonic", lambda: later)

            assert await session.get("/") == {}


@asynccontextmanager
async def web_server(
    answer: Callable[[web.BaseRequest], Awaitable[web.Response]], context: ssl.SSLContext
) -> AsyncIterator[int]:
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=context)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def test_a_token_that_is_gone_is_told(pod: Session, tmp_path: Path) -> None:
    (tmp_path / "token").unlink()

    with pytest.raises(UnreachableError, match="could not renew the credentials"):
        await pod.get(SLICES)


async def test_a_pod_without_an_account_is_told_what_to_do(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}

    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await incluster.connect(environ, tmp_path)


def test_a_kubeconfig_that_is_named_wins() -> None:
    host = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}

    assert has_account(host)
    assert not has_account({**host, "KUBECONFIG": "/x"})
    assert not has_account({})


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("hami_dra.node.__main__", {"kubernetes", "pydantic", "typer", "yaml"}),
        ("webhook.__main__", {"kubernetes", "yaml"}),
    ],
)
def test_what_runs_in_pods_loads_nothing_heavy_that_it_hardly_uses(
    program: str, heavy: set[str]
) -> None:
    script = (
        f"import sys, {program}, hami_dra.kube.incluster;"
        f"sys.exit(' '.join({heavy} & sys.modules.keys()) or 0)"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.stderr == b""
