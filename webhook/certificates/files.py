"""A certificate from files, such as a mounted Secret that cert-manager renews.

The files are read again and again: a mount is exchanged by renaming a folder, events of which get
lost, and reading two small files costs nothing.
"""

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from certs.authority import KeyPair
from webhook.certificate import Certificate, UnusableCertificateError

_PERIOD_S: Final = 10.0

_log = logging.getLogger(__name__)


class CertificateFileError(Exception):
    """A certificate or key file is missing, unreadable or does not fit the other."""


class CertificateFiles:
    """Two files and the certificate that follows them.

    Args:
        certificate: filled and kept current.
        certificate_file: PEM, with its intermediates.
        key_file: PEM, unencrypted.
        period_s: between two looks.
    """

    def __init__(
        self,
        certificate: Certificate,
        certificate_file: Path,
        key_file: Path,
        *,
        period_s: float = _PERIOD_S,
    ) -> None:
        self._certificate = certificate
        self._files = (certificate_file, key_file)
        self._period_s = period_s
        self._served: KeyPair | None = None

    def load(self) -> None:
        """Read the files and serve with them.

        Raises:
            CertificateFileError: if they cannot be used; a certificate loaded before stays.
        """
        self._serve(self._read())

    def refresh(self) -> None:
        """Serve with the files if they changed; trouble is told once and the old pair stays."""
        try:
            found = self._read()
            if found == self._served and not self._certificate.trouble:
                return
            self._serve(found)
        except CertificateFileError as error:
            if str(error) != self._certificate.trouble:
                self._certificate.failed(str(error))
                _log.error("the certificate before stays: %s", error)
        else:
            _log.info("serving with the changed files until %s", self._certificate.not_after)

    async def run(self) -> None:
        """Follow the files until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            self.refresh()

    def _serve(self, pair: KeyPair) -> None:
        try:
            self._certificate.use(pair, now=datetime.now(UTC))
        except UnusableCertificateError as error:
            names = " with ".join(map(str, self._files))
            raise CertificateFileError(f"could not use {names}: {error}") from error
        self._served = pair

    def _read(self) -> KeyPair:
        return KeyPair(*(_content(path) for path in self._files))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateFileError(
            f"could not read {path}: {error.strerror}; it must exist and be readable by the user"
            " of this process"
        ) from error
