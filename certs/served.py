"""Ask a server what it serves with, and whether a bundle of authorities makes a client trust it."""

import socket
import ssl
from dataclasses import dataclass
from typing import Final, Self

from certs.authority import CertificateError

_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens.

    Attributes:
        host: a name or an address.
        port: TCP.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read HOST:PORT; an IPv6 address stands in brackets."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal():
            raise CertificateError(
                f"address: found {text!r}, expected HOST:PORT such as localhost:8443 or"
                " [::1]:8443; write both"
            )
        return cls(host.removeprefix("[").removesuffix("]"), int(port))


def fetch(address: Address) -> bytes:
    """Return the certificate that a server shows, as PEM, whoever signed it.

    Raises:
        OSError: if there is no server, or none that speaks TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return ssl.DER_cert_to_PEM_cert(_handshake(address, context, name=address.host)).encode()


def verify(address: Address, *, name: str, bundle_pem: bytes) -> None:
    """Shake hands as an API server with this caBundle would.

    Args:
        address: where to dial.
        name: what the certificate must be for.
        bundle_pem: the authorities to trust.

    Raises:
        CertificateError: if the client would refuse the server.
        OSError: if there is no server, or none that speaks TLS.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(cadata=bundle_pem.decode("ascii", errors="replace"))
    except (ssl.SSLError, ValueError) as error:  # the latter for one that is empty
        raise CertificateError(
            f"bundle: found no readable certificate ({error}), expected PEM; decode the caBundle"
            " with base64 --decode first"
        ) from error
    try:
        _handshake(address, context, name=name)
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(
            f"the bundle does not fit: a client that dials {name} refuses the server:"
            f" {error.verify_message}; the bundle must hold the authority of what is served"
        ) from error


def _handshake(address: Address, context: ssl.SSLContext, *, name: str) -> bytes:
    with (
        socket.create_connection((address.host, address.port), timeout=_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
