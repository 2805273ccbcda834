"""An issued chain is accepted by a strict TLS peer, and what no peer accepts is not issued."""

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import (
    CLOCK_SKEW,
    CertificateError,
    KeyPair,
    Usage,
    create_authority,
    issue,
)

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
NAME = "webhook.hami-dra.svc"


def authority(*, lifetime: timedelta = 10 * DAY, now: datetime = NOW) -> KeyPair:
    return create_authority("test authority", now=now, lifetime=lifetime)


def server(signer: KeyPair, *, lifetime: timedelta = DAY) -> KeyPair:
    return issue(
        signer,
        common_name=NAME,
        usages=[Usage.SERVER],
        now=NOW,
        lifetime=lifetime,
        dns_names=[NAME],
        ip_addresses=["127.0.0.1", "::1"],
    )


def client(signer: KeyPair) -> KeyPair:
    return issue(
        signer,
        common_name="jane",
        organizations=["system:masters"],
        usages=[Usage.CLIENT],
        now=NOW,
        lifetime=DAY,
    )


def parsed(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate_pem)


def context(protocol: int, own: KeyPair, trusted: KeyPair, folder: Path) -> ssl.SSLContext:
    """Make a peer that shows one pair and strictly verifies the other side's."""
    file = folder / f"{protocol}.pem"
    file.write_bytes(own.certificate_pem + own.key_pem)
    result = ssl.SSLContext(protocol)
    result.load_cert_chain(file)
    result.load_verify_locations(cadata=trusted.certificate_pem.decode())
    result.verify_mode = ssl.CERT_REQUIRED
    result.verify_flags |= ssl.VERIFY_X509_STRICT
    return result


def handshake(server_side: ssl.SSLContext, client_side: ssl.SSLContext, *, dialled: str) -> None:
    """Let two peers in memory shake hands until both are content or one refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    pending = [
        client_side.wrap_bio(to_client, to_server, server_hostname=dialled),
        server_side.wrap_bio(to_server, to_client, server_side=True),
    ]
    while pending:
        peer = pending.pop(0)
        try:
            peer.do_handshake()
        except ssl.SSLWantReadError:
            pending.append(peer)


@pytest.mark.parametrize("dialled", [NAME, "127.0.0.1", "::1"])
def test_both_sides_of_a_strict_handshake_accept_the_chain(tmp_path: Path, dialled: str) -> None:
    signer = authority()
    server_side = context(ssl.PROTOCOL_TLS_SERVER, server(signer), signer, tmp_path)
    client_side = context(ssl.PROTOCOL_TLS_CLIENT, client(signer), signer, tmp_path)

    handshake(server_side, client_side, dialled=dialled)


@pytest.mark.parametrize("dialled", ["other.hami-dra.svc", "127.0.0.2"])
def test_a_client_refuses_a_server_under_another_name(tmp_path: Path, dialled: str) -> None:
    signer = authority()
    server_side = context(ssl.PROTOCOL_TLS_SERVER, server(signer), signer, tmp_path)
    client_side = context(ssl.PROTOCOL_TLS_CLIENT, client(signer), signer, tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        handshake(server_side, client_side, dialled=dialled)


def test_a_client_refuses_a_leaf_of_another_authority_with_the_same_name(tmp_path: Path) -> None:
    signer, other = authority(), authority()
    server_side = context(ssl.PROTOCOL_TLS_SERVER, server(other), signer, tmp_path)
    client_side = context(ssl.PROTOCOL_TLS_CLIENT, client(signer), signer, tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_side, client_side, dialled=NAME)


def test_a_server_certificate_does_not_pass_for_a_client(tmp_path: Path) -> None:
    signer = authority()
    server_side = context(ssl.PROTOCOL_TLS_SERVER, server(signer), signer, tmp_path)
    client_side = context(ssl.PROTOCOL_TLS_CLIENT, server(signer), signer, tmp_path)

    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(server_side, client_side, dialled=NAME)


@given(
    authority_days=st.integers(min_value=1, max_value=5000),
    leaf_seconds=st.integers(min_value=1, max_value=10**9),
)
def test_a_leaf_ends_when_asked_or_with_its_authority(
    authority_days: int, leaf_seconds: int
) -> None:
    signer = authority(lifetime=authority_days * DAY)

    leaf = parsed(server(signer, lifetime=timedelta(seconds=leaf_seconds)))

    wanted = NOW + timedelta(seconds=leaf_seconds)
    assert leaf.not_valid_after_utc == min(wanted, parsed(signer).not_valid_after_utc)
    assert leaf.not_valid_before_utc == NOW - CLOCK_SKEW


def test_a_kubernetes_client_carries_its_user_and_groups() -> None:
    assert parsed(client(authority())).subject.rfc4514_string() == "CN=jane,O=system:masters"


def test_the_order_of_usages_does_not_matter() -> None:
    """Whoever compares two certificates must not see a difference where none is meant."""
    signer = authority()

    def purposes(usages: list[Usage]) -> x509.ExtendedKeyUsage:
        leaf = issue(signer, common_name="a", usages=usages, now=NOW, lifetime=DAY, dns_names=["a"])
        return parsed(leaf).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value

    assert purposes([Usage.CLIENT, Usage.SERVER]) == purposes([Usage.SERVER, Usage.CLIENT])


def test_a_key_shows_in_no_repr() -> None:
    assert "PRIVATE KEY" not in repr(authority())


def test_an_authority_without_key_identifier_still_signs() -> None:
    """Authorities made by hand may lack one; the leaf then points at the digest of the key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "by hand")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    signer = KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )

    leaf = parsed(server(signer))

    digest = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest
    stated = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert stated.key_identifier == digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"usages": []}, "usages: found none"),
        ({"dns_names": []}, "dns_names, ip_addresses: found none"),
        ({"dns_names": ["bücher.example"]}, "punycode"),
        ({"dns_names": [""]}, "dns_names: found ''"),
        ({"ip_addresses": ["localhost"]}, "ip_addresses: found 'localhost'"),
        ({"common_name": ""}, "1 to 64 characters"),
        ({"common_name": "x" * 65}, "1 to 64 characters"),
        ({"lifetime": timedelta(0)}, "at least one second"),
        ({"lifetime": timedelta.max}, "year 10000"),
        ({"now": NOW.replace(tzinfo=None)}, "without a time zone"),
        ({"now": NOW + 11 * DAY}, "found one that ended"),
    ],
)
def test_what_cannot_be_certified_is_refused(change: dict[str, object], message: str) -> None:
    """The error says what was found, what was expected and what to do."""
    arguments: dict[str, object] = {
        "common_name": NAME,
        "usages": [Usage.SERVER],
        "now": NOW,
        "lifetime": DAY,
        "dns_names": [NAME],
    }

    with pytest.raises(CertificateError, match=message):
        issue(authority(), **{**arguments, **change})  # type: ignore[arg-type] # wrong on purpose


def test_an_authority_that_is_none_is_refused() -> None:
    signer = authority()
    leaf = server(signer)
    wrong = {
        "readable PEM": KeyPair(b"junk", signer.key_pem),
        "another certificate": replace(signer, key_pem=leaf.key_pem),
        "found the leaf": leaf,
    }

    for message, pair in wrong.items():
        with pytest.raises(CertificateError, match=message):
            server(pair)
