"""`hami-dra-certs` writes usable files and explains what a file holds."""

import ssl
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from certs.__main__ import app, main

run = CliRunner()


def written(folder: Path, *extra: str) -> Path:
    """Let the command write a pair below the folder, and return where."""
    out = folder / "new"
    argv = ["self-signed", "--dns", "a.b.svc", "--ip", "127.0.0.1", "--out", str(out), *extra]
    done = run.invoke(app, argv, catch_exceptions=False)
    assert done.exit_code == 0
    return out


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


def test_help_names_an_example() -> None:
    assert (
        "Example: hami-dra-certs self-signed" in run.invoke(app, ["self-signed", "--help"]).stdout
    )
