"""`hami-dra-certs` writes usable files and explains what a file holds."""

import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from typer.testing import CliRunner

from certs.__main__ import app, main
from certs.authority import CertificateError, create_authority
from certs.served import Address
from tests.certs.damage import OTHER_KIND, OTHER_VERSION, replaced

run = CliRunner()

PAIR = create_authority("a", now=datetime.now(UTC), lifetime=timedelta(days=1))


def written(folder: Path, *extra: str) -> Path:
    """Let the command write a pair below the folder, and return where."""
    out = folder / "new"
    argv = ["self-signed", "--dns", "a.b.svc", "--ip", "127.0.0.1", "--out", str(out), *extra]
    done = run.invoke(app, argv, catch_exceptions=False)
    assert done.exit_code == 0
    return out


# The second one has a name whose text is of no known kind.
UNREADABLE = (
    replaced(PAIR.certificate_pem, *OTHER_VERSION),
    replaced(PAIR.certificate_pem, "0c016130", "0d016130"),
)


def test_a_server_can_serve_with_the_files(tmp_path: Path) -> None:
    out = written(tmp_path)

    context = ssl.create_default_context(cafile=out / "ca.crt")
    context.load_cert_chain(out / "tls.crt", out / "tls.key")


def test_only_the_owner_may_read_the_key(tmp_path: Path) -> None:
    out = written(tmp_path)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()}

    assert modes == {"ca.crt": 0o644, "tls.crt": 0o644, "tls.key": 0o600}


def test_writing_again_replaces_the_files(tmp_path: Path) -> None:
    before = (written(tmp_path) / "tls.key").read_bytes()

    after = (written(tmp_path) / "tls.key").read_bytes()

    assert after != before


def test_check_explains_each_certificate_and_never_shows_a_key(tmp_path: Path) -> None:
    out = written(tmp_path, "--days", "30")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(b"".join((out / name).read_bytes() for name in ("tls.crt", "tls.key")))

    shown = run.invoke(app, ["check", str(bundle)], catch_exceptions=False).stdout

    assert "subject:  CN=hami-dra\nnames:    a.b.svc, 127.0.0.1\n" in shown
    assert "issuer:   CN=hami-dra-certs" in shown
    assert "(valid, 29 days left)" in shown
    assert shown.endswith("private key: EC secp256r1\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"junk", "found no PEM block"),
        (b"-----BEGIN CERTIFICATE-----\njunk\n-----END CERTIFICATE-----\n", "damaged certificate"),
        (b"-----BEGIN PRIVATE KEY-----\njunk\n-----END PRIVATE KEY-----\n", "damaged private key"),
        *((pem, "damaged certificate") for pem in UNREADABLE),
        (replaced(PAIR.key_pem, *OTHER_KIND), "damaged private key"),
        (None, "No such file"),
    ],
)
def test_trouble_is_one_line_on_stderr(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    message: str,
) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr("sys.argv", ["hami-dra-certs", "check", str(file)])

    with pytest.raises(SystemExit) as ended:
        main()

    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    assert message in said.err
    assert said.err.count("\n") == 1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A server that does nothing but shake hands, and the files it was made of."""
    out = written(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(out / "tls.crt", out / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=shake_hands, args=(listener, context))
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", out
        # Closing alone does not wake who waits in accept.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def shake_hands(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        with plain, suppress(OSError), context.wrap_socket(plain, server_side=True) as secured:
            secured.recv(1)


def test_check_asks_a_server_and_tries_a_bundle(server: tuple[str, Path]) -> None:
    address, out = server
    trusting = ["--bundle", str(out / "ca.crt"), "--name", "a.b.svc"]

    seen = run.invoke(app, ["check", "--connect", address], catch_exceptions=False)
    fits = run.invoke(app, ["check", "--connect", address, *trusting], catch_exceptions=False)

    assert (seen.exit_code, fits.exit_code) == (0, 0)
    assert "names:    a.b.svc, 127.0.0.1\n" in seen.stdout
    assert "trust:" not in seen.stdout
    assert "a client with this bundle that dials a.b.svc is content" in fits.stdout


@pytest.mark.parametrize(
    ("bundle", "name", "message"),
    [
        ("other/new/ca.crt", "a.b.svc", "the bundle does not fit"),
        ("new/ca.crt", "c.d.svc", "Hostname mismatch"),
        ("new/tls.key", "a.b.svc", "no readable certificate"),
        # What is left of a caBundle that nobody wrote, decoded.
        ("new/empty", "a.b.svc", "no readable certificate"),
    ],
)
def test_a_bundle_that_does_not_fit_is_an_error(
    tmp_path: Path, server: tuple[str, Path], bundle: str, name: str, message: str
) -> None:
    written(tmp_path / "other")
    (server[1] / "empty").touch()
    argv = ["check", "--connect", server[0], "--bundle", str(tmp_path / bundle), "--name", name]

    done = run.invoke(app, argv)

    assert isinstance(done.exception, CertificateError)
    assert message in str(done.exception)


@pytest.mark.parametrize("address", ["localhost", ":1", "localhost:x"])
def test_an_address_needs_both_halves(address: str) -> None:
    done = run.invoke(app, ["check", "--connect", address])

    assert "expected HOST:PORT" in str(done.exception)


def test_an_address_may_be_of_either_family() -> None:
    assert Address.parse("[::1]:8443") == Address("::1", 8443)
    assert Address.parse("webhook:8443") == Address("webhook", 8443)


@pytest.mark.parametrize("argv", [[], ["tls.crt", "--connect", "localhost:1"]])
def test_check_needs_one_thing_to_look_at(argv: list[str]) -> None:
    assert run.invoke(app, ["check", *argv]).exit_code == 2


def test_help_names_an_example() -> None:
    assert (
        "Example: hami-dra-certs self-signed" in run.invoke(app, ["self-signed", "--help"]).stdout
    )
