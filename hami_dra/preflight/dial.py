"""Dial a webhook that is registered by URL, as the API server does."""

import asyncio
import json
import ssl
from typing import Final
from urllib.parse import urlsplit

from hami_dra.migration import Json
from hami_dra.preflight.bundle import BundleError, pem_of
from hami_dra.preflight.evidence import Hidden, Served

_TIMEOUT_S: Final = 10.0
_HTTPS: Final = 443
_LONGEST: Final = 1 << 20


async def ask(url: str, client_config: Json) -> Served | Hidden:
    """Return what the webhook shows, trusted or not; hidden when it cannot be reached from here."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _HTTPS
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            certificate, ready = await _converse(host, port)
            distrust = await _distrust(host, port, client_config)
    except (OSError, TimeoutError) as error:
        return Hidden(f"{host}:{port} cannot be reached from here: {error!r}")
    return Served(certificate, distrust, ready)


async def _converse(host: str, port: int) -> tuple[bytes, Json | None]:
    """Take the certificate, whoever signed it, and the answer of /readyz."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        tls = writer.get_extra_info("ssl_object")
        certificate = ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True)).encode()
        request = f"GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        await writer.drain()
        answer = await _to_the_end(reader)
    finally:
        writer.close()
    return certificate, _body(answer)


async def _to_the_end(reader: asyncio.StreamReader) -> bytes:
    """Read until the other side has said all, or more than a webhook of ours does."""
    found = bytearray()
    while len(found) < _LONGEST and (piece := await reader.read(_LONGEST)):
        found += piece
    return bytes(found)


async def _distrust(host: str, port: int, client_config: Json) -> str:
    """Shake hands with the registered authorities; say why that fails, empty when it does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem_of(client_config).decode("ascii", "replace"))
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (BundleError, ssl.SSLError) as error:
        return str(error)
    writer.close()
    return ""


def _body(answer: bytes) -> Json | None:
    """Return the JSON object in an answer; None where there is none."""
    try:
        found = json.loads(answer.partition(b"\r\n\r\n")[2])
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
