"""PEM that is still PEM, and holds something else than it did."""

import base64
from collections.abc import Iterator


def replaced(pem: bytes, before: str, after: str) -> bytes:
    """Replace some bytes of the content, given in hexadecimal."""
    content, old = _content(pem), bytes.fromhex(before)
    assert old in content
    return _holding(pem, content.replace(old, bytes.fromhex(after)))


def each_with_another_bit(pem: bytes) -> Iterator[bytes]:
    """Turn one bit of the content: each fifth, which are bits of every value."""
    content = _content(pem)
    for bit in range(0, len(content) * 8, 5):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        yield _holding(pem, bytes(damaged))


def _content(pem: bytes) -> bytes:
    return base64.b64decode(b"".join(pem.splitlines()[1:-1]))


def _holding(pem: bytes, content: bytes) -> bytes:
    first, *_, last = pem.splitlines()
    return b"\n".join((first, base64.b64encode(content), last, b""))


OTHER_VERSION = ("a003020102", "a003020103")
"""Of a certificate: one that there is not."""

OTHER_KIND = ("2a8648ce3d0201", "2a8648ce3d027f")
"""Of a key: one that nobody knows."""
