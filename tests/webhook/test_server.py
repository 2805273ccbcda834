"""The real process: TLS with a verified certificate, a real API wire, and an orderly end."""

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from certs.authority import Usage, create_authority, issue
from tests.hami_dra.kube.api_double import API, ApiDouble
from tests.webhook.reviews import answer_of, gpu_pod, review_of

CREATE = f"POST {API}/namespaces/team/resourceclaimtemplates"


@asynccontextmanager
async def webhook(*flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the webhook; on leaving it gets SIGTERM and must end in good order."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "webhook", "--port", "0", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if not k.startswith("HAMI_DRA_WEBHOOK_")},
    )
    try:
        yield process
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), timeout=30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def words_until(stream: asyncio.StreamReader | None, mark: str) -> list[str]:
    """Read lines until one has the mark; return its words."""
    assert stream is not None
    async with asyncio.timeout(60):
        while line := (await stream.readline()).decode():
            if mark in line:
                return line.replace('"', " ").split()
    raise AssertionError(f"the process ended without saying {mark!r}")


def client(authority: str) -> httpx.AsyncClient:
    """Trust one authority only."""
    return httpx.AsyncClient(verify=ssl.create_default_context(cafile=authority), trust_env=False)


def names_beside(path: str) -> list[str]:
    """List the folder of a file, which may be gone."""
    return sorted(found.name for found in Path(path).parent.glob("*"))


async def test_standalone_serves_what_it_prints_and_ends_at_a_signal() -> None:
    async with webhook("--standalone", "--host", "127.0.0.1") as process:
        url = (await words_until(process.stdout, "listens on"))[-1]
        authority = (await words_until(process.stdout, "signed by"))[5].rstrip(",")
        async with client(authority) as trusting:
            answer = answer_of(
                await trusting.post(f"{url}/mutate", json=review_of(gpu_pod(gpu="1")))
            )
            assert (await trusting.get(f"{url}/readyz")).status_code == 200
            left = names_beside(authority)

    assert answer["allowed"] is True
    assert answer["patch"]
    assert left == ["ca.crt"]
    assert names_beside(authority) == []


async def test_in_a_cluster_it_waits_for_its_caches_and_creates_one_template(
    tmp_path: Path,
) -> None:
    async with ApiDouble().serving() as api:
        for _ in range(2):
            api.fail("GET /version", 503)
        async with in_cluster(api, tmp_path) as (_, trusting):
            for _ in range(2):
                answer_of(await trusting.post("/mutate", json=review_of(gpu_pod(gpu="1"))))

    assert api.count(CREATE) == 1


async def test_a_signal_lets_reviews_in_progress_finish(tmp_path: Path) -> None:
    async with ApiDouble().serving() as api, in_cluster(api, tmp_path) as (process, trusting):
        api.gate.clear()
        review = review_of(gpu_pod(gpu="1"))
        waiting = asyncio.create_task(trusting.post("/mutate", json=review))
        await api.called(CREATE, 1)
        process.send_signal(signal.SIGTERM)
        await until_nobody_listens(trusting)
        api.gate.set()

        assert answer_of(await waiting)["allowed"] is True


async def until_nobody_listens(trusting: httpx.AsyncClient) -> None:
    """Connect anew until that is refused; a connection may also be closed under a request."""
    async with asyncio.timeout(30):
        while True:
            try:
                await trusting.get("/healthz", headers={"Connection": "close"})
            except httpx.ConnectError:
                return
            except httpx.TransportError:
                continue


@asynccontextmanager
async def in_cluster(
    api: ApiDouble, directory: Path, *, delay_s: str = "0"
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    """Run the webhook against an API server until it is ready, with a client that trusts it."""
    authority = write_certificate(directory)
    config = api.write_kubeconfig(directory / "kubeconfig")
    flags = ["--kubeconfig", str(config), "--host", "127.0.0.1", "--log-format", "json"]
    flags += ["--termination-delay-s", delay_s]
    files = ["--tls-cert", str(directory / "tls.crt"), "--tls-key", str(directory / "tls.key")]
    async with webhook(*flags, *files) as process, client(authority) as trusting:
        words = await words_until(process.stderr, "listening on")
        trusting.base_url = httpx.URL(next(word for word in words if "://" in word))
        async with asyncio.timeout(30):
            while (await trusting.get("/readyz")).status_code != 200:
                pass
        yield process, trusting


def write_certificate(directory: Path) -> str:
    """Write a serving certificate and return its authority's path."""
    now, lifetime = datetime.now(UTC), timedelta(hours=1)
    authority = create_authority("test", now=now, lifetime=lifetime)
    leaf = issue(
        authority,
        common_name="webhook",
        usages=(Usage.SERVER,),
        now=now,
        lifetime=lifetime,
        ip_addresses=("127.0.0.1",),
    )
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    (directory / "tls.crt").write_bytes(leaf.certificate_pem)
    (directory / "tls.key").write_bytes(leaf.key_pem)
    return str(directory / "ca.crt")


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        ([], 2, "--tls-cert"),
        (["--tls-cert", "/none.crt", "--tls-key", "/none.key"], 1, "could not read /none.crt"),
        (["--standalone", "--log-level", "loud"], 2, "log_level"),
    ],
)
async def test_a_start_that_cannot_work_says_why(
    flags: list[str], status: int, message: str
) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "webhook", *flags),
        stderr=asyncio.subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if not k.startswith("HAMI_DRA_WEBHOOK_")},
    )
    _, said = await asyncio.wait_for(process.communicate(), timeout=60)

    assert process.returncode == status
    assert message in said.decode()
    assert "Traceback" not in said.decode()
