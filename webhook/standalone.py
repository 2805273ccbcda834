"""A webhook to try: no cluster, a certificate for an hour's play and a command that uses it."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from certs.authority import Usage, create_authority, issue
from webhook.certificate import Certificate
from webhook.review import API_VERSION

LOOPBACK: Final = "127.0.0.1"
"""Where a standalone webhook listens: it asks nobody for credentials."""

_LIFETIME: Final = timedelta(days=7)
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - only its existence is asked; mkdtemp makes ours


@contextmanager
def made_up_certificate(host: str) -> Iterator[tuple[Certificate, Path]]:
    """Serve with a certificate of our own authority, whose file is yielded too.

    The file is private to this user and, where the system allows, never touches a disk.
    """
    parent = _MEMORY if _MEMORY.is_dir() else None
    with TemporaryDirectory(prefix="hami-dra-webhook-", dir=parent) as directory:
        authority_file = Path(directory) / "ca.crt"
        now = datetime.now(UTC)
        authority = create_authority("hami-dra standalone", now=now, lifetime=_LIFETIME)
        leaf = issue(
            authority,
            common_name="hami-dra-webhook",
            usages=(Usage.SERVER,),
            now=now,
            lifetime=_LIFETIME,
            dns_names=("localhost", *([] if is_address(host) else [host])),
            ip_addresses=(LOOPBACK, "::1", *([host] if is_address(host) else [])),
        )
        authority_file.write_bytes(authority.certificate_pem)
        certificate = Certificate()
        certificate.use(leaf, now=now)
        yield certificate, authority_file


def instructions(url: str, authority_file: Path) -> str:
    """Explain how to send a review to a standalone webhook, as text to paste."""
    review = shlex.quote(json.dumps(_EXAMPLE))
    return (
        f"hami-dra-webhook listens on {url}\n"
        f"Its certificate is signed by {authority_file}, which goes when it stops.\n"
        "Send it a pod that asks for half of a card and see the patch:\n\n"
        f"curl --silent --cacert {authority_file} -H 'Content-Type: application/json'"
        f" {url}/mutate -d {review}"
        " | python3 -c 'import base64, json, sys;"
        ' print(base64.b64decode(json.load(sys.stdin)["response"]["patch"]).decode())\'\n'
    )


def is_address(host: str) -> bool:
    """Tell an IP address from a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


_EXAMPLE: Final = {
    "apiVersion": API_VERSION,
    "kind": "AdmissionReview",
    "request": {
        "uid": "try-me",
        "namespace": "default",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {
            "metadata": {"name": "trainer"},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "resources": {
                            "limits": {
                                "nvidia.com/gpu": "1",
                                "nvidia.com/gpumem": "8192",
                                "nvidia.com/gpucores": "50",
                            }
                        },
                    }
                ]
            },
        },
    },
}
