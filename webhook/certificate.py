"""The serving certificate: the context that connections use, and how the last exchange went."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from certs.authority import UNREADABLE, KeyPair
from certs.bundle import end_of


class UnusableCertificateError(Exception):
    """A certificate and its key cannot be served with."""


class Certificate:
    """A TLS server context whose certificate can be exchanged while it serves.

    New connections see the new one, old connections are not dropped, and what cannot be used is
    refused before it touches the context.

    Attributes:
        context: what the server accepts connections with.
        not_after: when the served certificate ends; None before the first.
        trouble: why the last exchange failed, empty after one that worked.
        failures: how many exchanges failed.
    """

    def __init__(self) -> None:
        self.context = _context()
        self.not_after: datetime | None = None
        self.trouble = ""
        self.failures = 0
        self._loaded = asyncio.Event()

    @property
    def is_valid(self) -> bool:
        """Tell whether there is a certificate that has not ended."""
        return self.not_after is not None and datetime.now(UTC) < self.not_after

    async def loaded(self) -> None:
        """Wait until there is a certificate."""
        await self._loaded.wait()

    def use(self, pair: KeyPair, *, now: datetime) -> None:
        """Serve with another pair from now on.

        Raises:
            UnusableCertificateError: if it cannot be used; the certificate before stays.
        """
        end = _checked_end(pair, now)
        # A failed load leaves half of the pair behind, so it is tried on a context of its own.
        for context in (_context(), self.context):
            _load(context, pair)
        self.not_after = end
        self.trouble = ""
        self._loaded.set()

    def failed(self, reason: str) -> None:
        """Record that no new certificate could be had; the one before stays."""
        self.trouble = reason
        self.failures += 1

    def recovered(self) -> None:
        """Record that nothing is wrong any more."""
        self.trouble = ""


def _checked_end(pair: KeyPair, now: datetime) -> datetime:
    try:
        end = end_of(pair.certificate_pem)
    except UNREADABLE as error:
        raise UnusableCertificateError(
            f"found no readable certificate ({error}), expected PEM"
        ) from error
    if end <= now:
        raise UnusableCertificateError(
            f"found a certificate that ended at {end:%Y-%m-%d %H:%M:%S} UTC, expected one that is"
            " valid; issue a new one"
        )
    return end


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _load(context: ssl.SSLContext, pair: KeyPair) -> None:
    try:
        with _as_file(pair.certificate_pem + b"\n" + pair.key_pem) as path:
            context.load_cert_chain(path, password=_refuse_password)
    except (ssl.SSLError, ValueError) as error:
        raise UnusableCertificateError(
            f"found a pair that TLS refuses ({error}), expected a PEM certificate and its own"
            " unencrypted key"
        ) from error


@contextmanager
def _as_file(content: bytes) -> Iterator[Path]:
    """Give content a path, which `ssl` insists on, without ever touching a disk."""
    with os.fdopen(os.memfd_create("certificate"), "wb") as file:
        file.write(content)
        file.flush()
        yield Path(f"/proc/self/fd/{file.fileno()}")


def _refuse_password() -> str:
    """Fail instead of asking at a terminal that nobody watches."""
    raise ValueError("the key is encrypted")
