"""The serving certificate: loaded from files into the context that connections use."""

import ssl
from pathlib import Path


class CertificateFileError(Exception):
    """A certificate or key file is missing, unreadable or does not fit the other."""


class Certificate:
    """A TLS server context and the files that it is filled from.

    Loading again into the same context changes what new connections see, without dropping old ones.

    Attributes:
        context: what the server accepts connections with.
        is_loaded: whether the context has a certificate.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.is_loaded = False
        self._certificate = certificate
        self._key = key

    def load(self) -> None:
        """Read the files.

        Raises:
            CertificateFileError: if they cannot be used; a certificate loaded before stays.
        """
        for path in (self._certificate, self._key):
            try:
                path.read_bytes()
            except OSError as error:
                raise CertificateFileError(
                    f"could not read {path}: {error.strerror}; it must exist and be readable by"
                    " the user of this process"
                ) from error
        try:
            self.context.load_cert_chain(self._certificate, self._key, _refuse_password)
        except (ssl.SSLError, ValueError) as error:
            raise CertificateFileError(
                f"could not use {self._certificate} with {self._key}: {error}; expected a PEM"
                " certificate and its own unencrypted key"
            ) from error
        self.is_loaded = True


def _refuse_password() -> str:
    """Fail instead of asking at a terminal that nobody watches."""
    raise ValueError("the key is encrypted")
