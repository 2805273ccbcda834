"""The console script `hami-dra-certs`: files with certificates, written and explained.

A shell around `certs.authority`: it reads the clock, the arguments and the disk.
The life cycle inside a cluster (Secret, renewal, reload) is the webhook's, with `certs.secret`.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from certs.authority import (
    UNREADABLE,
    CertificateError,
    KeyPair,
    Usage,
    create_authority,
    issue,
)
from certs.served import Address, fetch, verify

PRIVATE = 0o600
PUBLIC = 0o644

app = typer.Typer(
    help="Write and explain the certificates that hami-dra's webhook serves with.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def self_signed(
    out: Annotated[
        Path, typer.Option(help="Folder for ca.crt, tls.crt and tls.key; made when absent.")
    ],
    dns: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="DNS name of the server; repeat for several."),
    ] = None,
    ip: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDR", help="IP address of the server; repeat for several."),
    ] = None,
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=3650, help="How long both are valid.")
    ] = 365,
) -> None:
    """Issue one server certificate under a new authority whose key is thrown away.

    Put ca.crt into the webhook configuration's caBundle; serve with tls.crt and tls.key.
    For the webhook of a cluster the name is SERVICE.NAMESPACE.svc.

    Example: hami-dra-certs self-signed --dns hami-dra-webhook.hami-dra.svc --out certs
    """
    authority, leaf = _issued(dns or [], ip or [], lifetime=timedelta(days=days))
    out.mkdir(parents=True, exist_ok=True)
    _write(out / "tls.key", leaf.key_pem, mode=PRIVATE)
    _write(out / "tls.crt", leaf.certificate_pem, mode=PUBLIC)
    _write(out / "ca.crt", authority.certificate_pem, mode=PUBLIC)
    typer.echo(f"wrote ca.crt, tls.crt and tls.key to {out}")


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(help="A PEM file: certificates, a key, or both.")
    ] = None,
    connect: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Ask a running server instead of a file."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            help="PEM file with the authorities that must make a client trust the server."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="What the server's certificate must be for. Default: the host."),
    ] = None,
) -> None:
    """Print subject, names, issuer and validity of what a file holds or a server serves.

    The exit code is 1 when the server's certificate ended or the bundle does not fit it.

    Example: hami-dra-certs check --connect localhost:8443 --bundle ca.crt
    --name hami-dra-webhook.hami-dra-system.svc
    """
    if (file is None) == (connect is None):
        raise typer.BadParameter("found both or neither, expected FILE or --connect")
    if file is not None:
        typer.echo("\n\n".join(_described_file(file)))
    elif connect is not None:
        _check_server(Address.parse(connect), bundle, name)


def main() -> None:
    """Run the console script; trouble is one line on stderr and exit code 1."""
    try:
        app()
    except (CertificateError, OSError) as error:
        typer.echo(f"hami-dra-certs: {error}", err=True)
        sys.exit(1)


def _issued(
    dns_names: list[str], ip_addresses: list[str], *, lifetime: timedelta
) -> tuple[KeyPair, KeyPair]:
    """Create an authority and a server's leaf under it."""
    now = datetime.now(UTC)
    authority = create_authority("hami-dra-certs", now=now, lifetime=lifetime)
    leaf = issue(
        authority,
        # Clients read the alternative names; a long one would not fit here.
        common_name="hami-dra",
        usages=[Usage.SERVER],
        now=now,
        lifetime=lifetime,
        dns_names=dns_names,
        ip_addresses=ip_addresses,
    )
    return authority, leaf


def _described_file(file: Path) -> list[str]:
    found = list(_described(file.read_bytes(), now=datetime.now(UTC)))
    if not found:
        raise CertificateError(
            f"{file}: found no PEM block that is a certificate or a private key, expected at"
            " least one; give the file that was written as *.crt, *.pem or *.key"
        )
    return found


def _check_server(address: Address, bundle: Path | None, name: str | None) -> None:
    """Print what is served, then judge it."""
    served = x509.load_pem_x509_certificate(fetch(address))
    now = datetime.now(UTC)
    typer.echo(_certificate_text(served, now=now))
    if now > served.not_valid_after_utc:
        raise CertificateError(
            "the served certificate ended, expected one that is valid; see the server's log for"
            " why it was not renewed"
        )
    if bundle is not None:
        dialled = name or address.host
        verify(address, name=dialled, bundle_pem=bundle.read_bytes())
        typer.echo(f"trust:    a client with this bundle that dials {dialled} is content")


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace the file in one step, so that no reader sees half of it or a wider mode."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _described(pem: bytes, *, now: datetime) -> Iterator[str]:
    """Describe each certificate, then the private key when there is one."""
    if b"-----BEGIN CERTIFICATE-----" in pem:
        try:
            certificates = x509.load_pem_x509_certificates(pem)
            texts = [_certificate_text(each, now=now) for each in certificates]
        except UNREADABLE as cause:
            raise CertificateError(
                f"found a damaged certificate ({cause}), expected base64 of one between BEGIN and"
                " END; copy the file again"
            ) from cause
        yield from texts
    if b"PRIVATE KEY-----" in pem:
        yield f"private key: {_key_kind(pem)}"


def _certificate_text(certificate: x509.Certificate, *, now: datetime) -> str:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        state = "not yet valid"
    elif now > end:
        state = "EXPIRED"
    else:
        state = f"valid, {(end - now).days} days left"
    return "\n".join(
        (
            f"subject:  {certificate.subject.rfc4514_string()}",
            f"names:    {', '.join(_names(certificate)) or '(none)'}",
            f"issuer:   {certificate.issuer.rfc4514_string()}",
            f"validity: {start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC ({state})",
        )
    )


def _names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    yield from names.get_values_for_type(x509.DNSName)
    yield from (str(address) for address in names.get_values_for_type(x509.IPAddress))


def _key_kind(pem: bytes) -> str:
    """Name the kind of the key and nothing of its content."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        return "encrypted"
    except UNREADABLE as cause:
        raise CertificateError(
            f"found a damaged private key ({cause}), expected base64 of one between BEGIN and"
            " END; copy the file again"
        ) from cause
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return f"EC {key.curve.name}"
    return type(key).__name__.removesuffix("PrivateKey")


if __name__ == "__main__":
    main()
