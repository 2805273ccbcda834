"""Keys are private, and a kubeconfig holds all that a client needs."""

import base64
import json
import stat
from datetime import UTC, datetime
from pathlib import Path

from hami_dra.lab import pki
from hami_dra.lab.layout import Layout

ISSUER = pki.create_issuer(datetime.now(UTC))
SERVER = "https://127.0.0.1:20001"


def test_no_written_file_is_readable_by_others(tmp_path: Path) -> None:
    layout = Layout(tmp_path)

    pki.write_pki(layout, ISSUER)
    pki.write_kubeconfigs(layout, ISSUER, SERVER)

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_kubeconfig_carries_a_client_certificate() -> None:
    client = ISSUER.client("jane", "developers")

    content = pki.kubeconfig(SERVER, ISSUER.authority.certificate_pem, client)

    [cluster], [user] = content["clusters"], content["users"]
    assert cluster["cluster"]["server"] == SERVER
    authority = base64.b64decode(cluster["cluster"]["certificate-authority-data"])
    assert authority == ISSUER.authority.certificate_pem
    assert base64.b64decode(user["user"]["client-certificate-data"]) == client.certificate_pem
    assert base64.b64decode(user["user"]["client-key-data"]) == client.key_pem


def test_a_kubeconfig_carries_a_token() -> None:
    content = pki.kubeconfig(SERVER, b"ca", "secret-token")

    assert content["users"] == [{"name": "lab", "user": {"token": "secret-token"}}]


def test_a_kubeconfig_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "user"
    pki.write_kubeconfig(path, {"much": "x" * 100})

    pki.write_kubeconfig(path, {"kind": "Config"})

    assert json.loads(path.read_text()) == {"kind": "Config"}
