"""Replicas that sign for themselves, on a real API wire: races, faults, and a clock of our own."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from certs.bundle import Authority, Lifetimes, ca_bundle, parse
from certs.leaf import service_names
from certs.secret import Place
from hami_dra.kube.session import Session
from hami_dra.kube.templates import MemoryTemplates
from hami_dra.migration import Json
from tests.hami_dra.kube.api_double import REGISTRATION, ApiDouble
from tests.webhook.reviews import get
from webhook.app import Dependencies, create_app
from webhook.certificate import Certificate
from webhook.certificates.secret import CertificateSecret

PLACE = Place(namespace="system", secret="ca", mutating="hook", validating="hook")
LIFETIMES = Lifetimes()
MUTATING, VALIDATING = "mutatingwebhookconfigurations", "validatingwebhookconfigurations"
SECRETS = "/api/v1/namespaces/system/secrets"
READ, CREATE, REPLACE = f"GET {SECRETS}/ca", f"POST {SECRETS}", f"PUT {SECRETS}/ca"


class Replica:
    """One replica, whose clock stands still unless it is turned."""

    def __init__(self, session: Session) -> None:
        self.certificate = Certificate()
        self.now = datetime.now(UTC)
        self.source = CertificateSecret(
            session,
            self.certificate,
            place=PLACE,
            names=service_names("webhook", "system"),
            lifetimes=LIFETIMES,
            clock=lambda: self.now,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run meanwhile, from the first certificate on."""
        task = asyncio.create_task(self.source.run())
        try:
            await asyncio.wait_for(self.certificate.loaded(), timeout=60)
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def api() -> AsyncIterator[ApiDouble]:
    """An API server with both registrations, which trust nobody yet."""
    async with ApiDouble().serving() as double:
        for kind in (MUTATING, VALIDATING):
            await double.put(kind, registration())
        yield double


@pytest.fixture
async def session(api: ApiDouble, tmp_path: Path) -> AsyncIterator[Session]:
    async with await Session.connect(api.write_kubeconfig(tmp_path / "kubeconfig")) as connected:
        yield connected


@pytest.fixture
async def replicas(session: Session) -> tuple[Replica, Replica]:
    return Replica(session), Replica(session)


def registration(bundle: str = "") -> Json:
    return {"metadata": {"name": "hook"}, "webhooks": [{"clientConfig": {"caBundle": bundle}}]}


def authority(api: ApiDouble) -> Authority:
    data = api.found("secrets", "system", "ca")["data"]
    return parse({key: base64.b64decode(value) for key, value in data.items()})


def trusted(api: ApiDouble, kind: str = MUTATING) -> bytes:
    [webhook] = api.found(kind, "", "hook")["webhooks"]
    return base64.b64decode(webhook["clientConfig"]["caBundle"])


async def until(api: ApiDouble, condition: Callable[[], bool]) -> None:
    """Wait for a request that makes the condition true."""
    async with asyncio.timeout(60), api.arrived:
        await api.arrived.wait_for(condition)


async def test_replicas_that_start_together_share_one_authority(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    """Both try to create the Secret; for the slower one that is success, too."""
    first, second = replicas
    api.gate.clear()
    looks = asyncio.gather(first.source.refresh(), second.source.refresh())
    await api.called(CREATE, 2)
    api.gate.set()
    await looks

    assert first.certificate.is_valid
    assert second.certificate.is_valid
    assert (first.certificate.failures, second.certificate.failures) == (0, 0)
    assert trusted(api) == trusted(api, VALIDATING) == ca_bundle(authority(api))


async def test_a_lost_race_for_a_registration_is_run_again(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    api.fail(f"PUT {REGISTRATION}/{MUTATING}/hook", 409)

    await replicas[0].source.refresh()

    assert trusted(api) == ca_bundle(authority(api))
    assert replicas[0].certificate.failures == 0


async def test_a_registration_that_is_overwritten_comes_back(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    async with replicas[0].running():
        truth = trusted(api)
        await api.put(MUTATING, registration("bm9ib2R5"))

        await until(api, lambda: api.count(f"PUT {REGISTRATION}/{MUTATING}/hook") >= 2)
        await until(api, lambda: trusted(api) == truth)


async def test_a_registration_that_comes_later_is_filled(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    await api.remove(VALIDATING, "", "hook")
    async with replicas[0].running():
        await api.put(VALIDATING, registration())

        await until(api, lambda: trusted(api, VALIDATING) == trusted(api) != b"")


async def test_a_secret_that_is_deleted_comes_back_by_itself(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    async with replicas[0].running():
        before = authority(api)
        await api.remove("secrets", "system", "ca")
        await api.called(CREATE, 2)
        # The watch shows our own write, so another look begins once it is done.
        await api.called(READ, api.count(READ) + 1)

        assert authority(api) == before


async def test_a_secret_that_is_deleted_or_damaged_is_told_and_disturbs_no_leaf(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    one = replicas[0]
    await one.source.refresh()
    before, end = authority(api), one.certificate.not_after

    await api.remove("secrets", "system", "ca")
    await one.source.refresh()
    assert "it was not there" in one.certificate.trouble
    await api.put("secrets", {"metadata": {"name": "ca", "namespace": "system"}, "data": {}})
    await one.source.refresh()
    assert "it is empty" in one.certificate.trouble
    await one.source.refresh()

    assert one.certificate.trouble == ""
    assert one.certificate.failures == 2
    assert (authority(api), one.certificate.not_after) == (before, end)


async def test_trouble_shows_in_readiness_while_the_old_certificate_serves(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    """A person who took our rights away must learn why nothing is renewed."""
    one = replicas[0]
    app = create_app(
        Dependencies(
            templates=MemoryTemplates(),
            checks={"certificate": lambda: one.certificate.is_valid},
            troubles={"certificate": lambda: one.certificate.trouble},
        )
    )
    assert (await get(app, "/readyz")).status_code == 503
    await one.source.refresh()
    assert (await get(app, "/readyz")).json() == {"missing": []}

    for _ in range(2):
        api.fail(READ, 403)
        await one.source.refresh()

    answer = await get(app, "/readyz")
    assert answer.status_code == 200
    assert "could not keep the authority's Secret: 403" in answer.json()["degraded"]["certificate"]
    assert one.certificate.failures == 1
    await one.source.refresh()
    assert (await get(app, "/readyz")).json() == {"missing": []}


async def test_leaves_are_renewed_while_the_api_server_is_away(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    one = replicas[0]
    await one.source.refresh()
    first_end = one.certificate.not_after
    one.now += LIFETIMES.leaf * 2 / 3
    api.fail(READ, 500)

    await one.source.refresh()

    assert first_end is not None
    assert one.certificate.not_after is not None
    assert one.certificate.not_after - first_end == LIFETIMES.leaf * 2 / 3


async def test_an_authority_that_ended_unrenewed_is_told_and_not_the_end(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    one = replicas[0]
    await one.source.refresh()
    one.now += LIFETIMES.authority + timedelta(seconds=1)
    api.fail(READ, 500)

    await one.source.refresh()
    assert "could not issue a certificate" in one.certificate.trouble
    await one.source.refresh()

    assert one.certificate.trouble == ""
    assert trusted(api) == ca_bundle(authority(api))


async def test_an_authority_is_passed_on_in_three_writes(
    api: ApiDouble, replicas: tuple[Replica, Replica]
) -> None:
    """One follows, one signs, one is forgotten; the other replica has nothing to add."""
    one, other = replicas
    for step in (timedelta(0), LIFETIMES.authority * 2 / 3, LIFETIMES.overlap, LIFETIMES.authority):
        one.now += step
        other.now = one.now
        for replica in (one, other, one):
            await replica.source.refresh()
        if step == LIFETIMES.overlap:
            assert len(authority(api).previous) == 1

    assert api.count(CREATE) == 1
    assert authority(api).previous == ()


@pytest.mark.parametrize(
    "jump", [timedelta(days=25), LIFETIMES.authority * 2, -timedelta(days=400)]
)
async def test_a_clock_that_jumps_and_comes_back_leaves_certificates_that_are_valid_now(
    api: ApiDouble, replicas: tuple[Replica, Replica], jump: timedelta
) -> None:
    one, other = replicas
    for replica in (one, other):
        await replica.source.refresh()
    right = one.now

    for now in (right + jump, right):
        one.now = now
        for replica in (one, other, one):
            await replica.source.refresh()

    for replica in (one, other):
        assert replica.certificate.not_after == (right + LIFETIMES.leaf).replace(microsecond=0)
    assert trusted(api) == ca_bundle(authority(api))
    current = x509.load_pem_x509_certificate(authority(api).current.certificate_pem)
    assert current.not_valid_before_utc <= right < current.not_valid_after_utc
