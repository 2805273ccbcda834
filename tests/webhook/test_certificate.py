"""A certificate is exchanged while it serves, or the reason why not is named and the old one stays.

Judged by real handshakes, because a context that was loaded half looks fine from outside.
"""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import KeyPair, Usage, create_authority, issue
from tests.certs.damage import OTHER_VERSION, replaced
from webhook.certificate import Certificate, UnusableCertificateError
from webhook.certificates.files import CertificateFileError, CertificateFiles
from webhook.certificates.metrics import CertificateCollector

NOW, LIFETIME = datetime.now(UTC), timedelta(hours=1)
AUTHORITY = create_authority("test", now=NOW, lifetime=LIFETIME)


def new_leaf(lifetime: timedelta = LIFETIME, *, now: datetime = NOW) -> KeyPair:
    usages = (Usage.SERVER,)
    return issue(
        AUTHORITY, common_name="w", usages=usages, now=now, lifetime=lifetime, dns_names=("w",)
    )


LEAF, OTHER = new_leaf(), new_leaf(LIFETIME / 2)
MISMATCHED = KeyPair(OTHER.certificate_pem, LEAF.key_pem)


def served(certificate: Certificate) -> bytes:
    """Shake hands in memory and return the certificate that the client got, as PEM."""
    trusting = ssl.create_default_context(cadata=AUTHORITY.certificate_pem.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname="w")
    pending = [client, certificate.context.wrap_bio(to_server, to_client, server_side=True)]
    while pending:
        peer = pending.pop(0)
        try:
            peer.do_handshake()
        except ssl.SSLWantReadError:
            pending.append(peer)
    return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"").encode()


@pytest.fixture
def certificate() -> Certificate:
    found = Certificate()
    found.use(LEAF, now=NOW)
    return found


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "tls.crt", tmp_path / "tls.key"
    write(found, LEAF)
    return found


def write(paths: tuple[Path, Path], pair: KeyPair) -> None:
    paths[0].write_bytes(pair.certificate_pem)
    paths[1].write_bytes(pair.key_pem)


async def test_new_connections_see_the_new_certificate(certificate: Certificate) -> None:
    assert served(certificate) == LEAF.certificate_pem

    certificate.use(OTHER, now=NOW)

    assert served(certificate) == OTHER.certificate_pem
    assert certificate.is_valid
    await certificate.loaded()


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (MISMATCHED, "TLS refuses"),
        (KeyPair(OTHER.certificate_pem, b"junk"), "TLS refuses"),
        (KeyPair(b"junk", OTHER.key_pem), "no readable certificate"),
        (KeyPair(b"", b""), "no readable certificate"),
        (
            KeyPair(replaced(OTHER.certificate_pem, *OTHER_VERSION), OTHER.key_pem),
            "no readable certificate",
        ),
        (new_leaf(LIFETIME, now=NOW - 2 * LIFETIME), "ended at"),
    ],
)
def test_what_is_refused_leaves_the_served_one_alone(
    certificate: Certificate, pair: KeyPair, message: str
) -> None:
    before = certificate.not_after

    with pytest.raises(UnusableCertificateError, match=message):
        certificate.use(pair, now=NOW)

    assert served(certificate) == LEAF.certificate_pem
    assert certificate.not_after == before


def test_without_a_certificate_nothing_is_valid() -> None:
    assert not Certificate().is_valid


def test_files_that_change_are_followed(certificate: Certificate, paths: tuple[Path, Path]) -> None:
    files = CertificateFiles(certificate, *paths)
    files.load()
    write(paths, OTHER)

    files.refresh()

    assert served(certificate) == OTHER.certificate_pem
    assert certificate.failures == 0


def test_a_mismatched_pair_keeps_the_old_one_and_is_told_once(
    certificate: Certificate, paths: tuple[Path, Path]
) -> None:
    files = CertificateFiles(certificate, *paths)
    files.load()
    write(paths, MISMATCHED)

    for _ in range(3):
        files.refresh()

    assert served(certificate) == LEAF.certificate_pem
    assert certificate.is_valid
    assert "could not use" in certificate.trouble
    assert certificate.failures == 1


@pytest.mark.parametrize("pair", [LEAF, OTHER])
def test_files_that_are_good_again_end_the_trouble(
    certificate: Certificate, paths: tuple[Path, Path], pair: KeyPair
) -> None:
    files = CertificateFiles(certificate, *paths)
    files.load()
    paths[1].unlink()
    files.refresh()
    assert "could not read" in certificate.trouble

    write(paths, pair)
    files.refresh()

    assert certificate.trouble == ""
    assert served(certificate) == pair.certificate_pem


@pytest.mark.parametrize("text", [b"", b"nonsense"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_file_is_named(paths: tuple[Path, Path], which: int, text: bytes) -> None:
    paths[which].write_bytes(text)

    with pytest.raises(CertificateFileError, match=r"tls\.crt with .*tls\.key"):
        CertificateFiles(Certificate(), *paths).load()


def test_a_missing_file_is_named(paths: tuple[Path, Path]) -> None:
    paths[1].unlink()

    with pytest.raises(CertificateFileError, match=r"could not read .*tls\.key: No such file"):
        CertificateFiles(Certificate(), *paths).load()


def test_the_metrics_tell_the_end_and_the_failures(certificate: Certificate) -> None:
    certificate.failed("why not")

    end, failures = CertificateCollector(certificate).collect()

    assert certificate.not_after is not None
    assert end.samples[0].value == certificate.not_after.timestamp()
    assert failures.samples[0].name == "hami_dra_webhook_certificate_reload_failures_total"
    assert failures.samples[0].value == 1
    [no_end, _] = CertificateCollector(Certificate()).collect()
    assert no_end.samples == []
