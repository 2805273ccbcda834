"""Issue a certificate authority and the leaves under it, as values.

Pure: what the clock says comes in as `now`, what a file should hold goes out as PEM.
Nothing here reads or writes a file, and nothing here decides when to renew.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A peer whose clock runs a little behind must not see a certificate "from the future".
CLOCK_SKEW = timedelta(minutes=5)

UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What a damaged certificate or key raises when it is loaded, or when a part of it is read."""


class CertificateError(ValueError):
    """A certificate cannot be issued from what was given."""


class Usage(StrEnum):
    """What a leaf may prove its holder to be."""

    SERVER = "server"
    CLIENT = "client"


_PURPOSES = {
    Usage.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
    Usage.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
}


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM.

    Attributes:
        certificate_pem: one X.509 certificate.
        key_pem: its unencrypted PKCS #8 key; left out of `repr`, so that no log shows it.
    """

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


def create_authority(common_name: str, *, now: datetime, lifetime: timedelta) -> KeyPair:
    """Create a self-signed ECDSA P-256 authority that may sign leaves and nothing above them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name, ())
    builder = _builder(
        subject=name,
        issuer=name,
        public_key=key.public_key(),
        now=now,
        end=_end(now, lifetime),
        is_authority=True,
    )
    return _sealed(builder, key, signer=key)


def issue(
    authority: KeyPair,
    *,
    common_name: str,
    usages: Collection[Usage],
    now: datetime,
    lifetime: timedelta,
    organizations: Collection[str] = (),
    dns_names: Collection[str] = (),
    ip_addresses: Collection[str | IPv4Address | IPv6Address] = (),
) -> KeyPair:
    """Issue an ECDSA P-256 leaf; it ends with its authority where `lifetime` would outlive it.

    Args:
        authority: who signs; its key must belong to its certificate.
        common_name: the subject; for a Kubernetes client, the user.
        usages: at least one; a server needs a DNS name or an IP address as well.
        now: the present, with a time zone.
        lifetime: how long the leaf is wanted to be valid from `now`.
        organizations: for a Kubernetes client, the groups.
        dns_names: ASCII names (punycode where needed), wildcards allowed.
        ip_addresses: addresses that clients dial.

    Raises:
        CertificateError: the authority is not usable or an argument cannot be certified.
    """
    issuer, signer = _loaded(authority)
    names = _alternative_names(dns_names, ip_addresses)
    _check_usages(usages, has_names=bool(names))
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(
        subject=_name(common_name, organizations),
        issuer=issuer.subject,
        public_key=key.public_key(),
        now=now,
        end=min(_end(now, lifetime), _authority_end(issuer, now)),
        is_authority=False,
    )
    builder = builder.add_extension(_purposes(usages), critical=False)
    builder = builder.add_extension(_issuer_identifier(issuer, signer), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _sealed(builder, key, signer=signer)


def check_authority(authority: KeyPair) -> None:
    """Refuse a pair that `issue` could not sign with at any time.

    Raises:
        CertificateError: it is damaged, not a pair, or not an authority.
    """
    _loaded(authority)


def _builder(
    *,
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    end: datetime,
    is_authority: bool,
) -> x509.CertificateBuilder:
    """Start a certificate with what an authority and a leaf have in common."""
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(end)
        .add_extension(constraints, critical=True)
        .add_extension(_key_usage(signs_certificates=is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _sealed(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    *,
    signer: ec.EllipticCurvePrivateKey,
) -> KeyPair:
    """Sign the certificate and write both halves as PEM."""
    return KeyPair(
        certificate_pem=builder.sign(signer, hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM
        ),
        key_pem=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _loaded(authority: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Parse the authority and check that it is one."""
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate_pem)
        key = serialization.load_pem_private_key(authority.key_pem, password=None)
        # These are read only when somebody asks for them.
        owner, _, _ = certificate.public_key(), certificate.subject, certificate.extensions
    except UNREADABLE as cause:
        raise CertificateError(
            f"authority: found no readable PEM ({cause}), expected one certificate and its"
            " unencrypted key; create one with create_authority"
        ) from cause
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(
            f"authority: found a key of type {type(key).__name__}, expected an EC key;"
            " create one with create_authority"
        )
    if key.public_key() != owner:
        raise CertificateError(
            "authority: found a key that belongs to another certificate, expected the key of"
            f" {certificate.subject.rfc4514_string()}; read both from the same place"
        )
    _check_signs(certificate)
    return certificate, key


def _check_signs(certificate: x509.Certificate) -> None:
    """Refuse a certificate whose constraints forbid it to sign others."""
    constraints = [
        extension.value
        for extension in certificate.extensions
        if isinstance(extension.value, x509.BasicConstraints)
    ]
    if not any(constraint.ca for constraint in constraints):
        raise CertificateError(
            f"authority: found the leaf {certificate.subject.rfc4514_string()}, expected a"
            " certificate with CA:TRUE; give the authority that issued it"
        )


def _authority_end(issuer: x509.Certificate, now: datetime) -> datetime:
    """Return when the authority ends, which must be after `now`."""
    end = issuer.not_valid_after_utc
    if end <= now:
        raise CertificateError(
            f"authority: found one that ended at {end.isoformat()}, expected one that is valid"
            f" at {now.isoformat()}; create a new one"
        )
    return end


def _end(now: datetime, lifetime: timedelta) -> datetime:
    """Add the lifetime to the present after judging both."""
    if now.tzinfo is None:
        raise CertificateError(
            f"now: found {now.isoformat()} without a time zone, expected one;"
            " pass datetime.now(UTC)"
        )
    if lifetime < timedelta(seconds=1):
        raise CertificateError(
            f"lifetime: found {lifetime}, expected at least one second; pass a longer one"
        )
    try:
        return now + lifetime
    except OverflowError as cause:
        raise CertificateError(
            f"lifetime: found {lifetime}, expected an end before the year 10000; pass a shorter one"
        ) from cause


def _name(common_name: str, organizations: Collection[str]) -> x509.Name:
    """Build a distinguished name: the organizations, then the common name."""
    try:
        return x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
    except ValueError as cause:
        raise CertificateError(
            f"subject: found common name {common_name!r} and organizations"
            f" {list(organizations)!r}, expected 1 to 64 characters each ({cause}); shorten them"
        ) from cause


def _alternative_names(
    dns_names: Collection[str], ip_addresses: Collection[str | IPv4Address | IPv6Address]
) -> list[x509.GeneralName]:
    """Turn names and addresses into what clients compare the dialled one with."""
    return [
        *(_dns_name(name) for name in dns_names),
        *(_ip_address(address) for address in ip_addresses),
    ]


def _dns_name(name: str) -> x509.DNSName:
    if not name or not name.isascii() or not name.isprintable() or " " in name:
        raise CertificateError(
            f"dns_names: found {name!r}, expected printable ASCII without spaces; write an"
            " international name in punycode"
        )
    return x509.DNSName(name)


def _ip_address(address: str | IPv4Address | IPv6Address) -> x509.IPAddress:
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError as cause:
        raise CertificateError(
            f"ip_addresses: found {address!r}, expected an IPv4 or IPv6 address; put host names"
            " into dns_names"
        ) from cause


def _check_usages(usages: Collection[Usage], *, has_names: bool) -> None:
    """Refuse a leaf that no peer could accept."""
    if not usages:
        raise CertificateError(
            "usages: found none, expected at least one of"
            f" {', '.join(Usage)}; without it every peer refuses the leaf"
        )
    if Usage.SERVER in usages and not has_names:
        raise CertificateError(
            "dns_names, ip_addresses: found none, expected at least one for a server; clients"
            " compare what they dialled with these and ignore the common name"
        )


def _purposes(usages: Collection[Usage]) -> x509.ExtendedKeyUsage:
    """List the purposes in one order, whatever order the caller gave."""
    return x509.ExtendedKeyUsage([_PURPOSES[usage] for usage in Usage if usage in usages])


def _issuer_identifier(
    issuer: x509.Certificate, signer: ec.EllipticCurvePrivateKey
) -> x509.AuthorityKeyIdentifier:
    """Point at the authority's key by the identifier that its own certificate states."""
    try:
        stated = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(stated.value)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Allow signatures; for an authority also on certificates and revocation lists."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
