"""Read the authorities that a registration trusts. Pure."""

import base64
import binascii

from cryptography import x509

from hami_dra.migration import Json


class BundleError(Exception):
    """A caBundle makes nobody trusted; the message says why."""


def pem_of(client_config: Json) -> bytes:
    """Return a registration's caBundle as PEM.

    Raises:
        BundleError: if there is none.
    """
    encoded = client_config.get("caBundle")
    if not encoded:
        raise BundleError("the registration has no caBundle, so the webhook is not trusted")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BundleError(f"the registration's caBundle is not base64: {error}") from error


def authorities(client_config: Json) -> list[x509.Certificate]:
    """Return the certificates in a registration's caBundle, at least one.

    Raises:
        BundleError: if there are none.
    """
    try:
        return x509.load_pem_x509_certificates(pem_of(client_config))
    except ValueError as error:
        raise BundleError(
            f"the registration's caBundle holds no readable certificate: {error}"
        ) from error
