"""A certificate is loaded, or the reason why not is named and the one before stays."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.authority import KeyPair, Usage, create_authority, issue
from webhook.certificate import Certificate, CertificateFileError

NOW, LIFETIME = datetime.now(UTC), timedelta(hours=1)


@pytest.fixture(scope="module")
def leaf() -> KeyPair:
    authority = create_authority("test", now=NOW, lifetime=LIFETIME)
    return issue(
        authority,
        common_name="w",
        usages=(Usage.SERVER,),
        now=NOW,
        lifetime=LIFETIME,
        dns_names=("w",),
    )


@pytest.fixture
def files(tmp_path: Path, leaf: KeyPair) -> tuple[Path, Path]:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(leaf.certificate_pem)
    key.write_bytes(leaf.key_pem)
    return certificate, key


def test_files_that_fit_are_loaded(files: tuple[Path, Path]) -> None:
    certificate = Certificate(*files)
    assert not certificate.is_loaded

    certificate.load()

    assert certificate.is_loaded


@pytest.mark.parametrize("text", [b"", b"nonsense"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_file_is_named(files: tuple[Path, Path], which: int, text: bytes) -> None:
    files[which].write_bytes(text)

    with pytest.raises(CertificateFileError, match=r"tls\.crt with .*tls\.key"):
        Certificate(*files).load()


def test_a_missing_file_is_named(files: tuple[Path, Path]) -> None:
    files[1].unlink()

    with pytest.raises(CertificateFileError, match=r"could not read .*tls\.key: No such file"):
        Certificate(*files).load()


def test_a_key_of_another_certificate_is_refused_and_the_old_one_stays(
    files: tuple[Path, Path],
) -> None:
    certificate = Certificate(*files)
    certificate.load()
    files[1].write_bytes(create_authority("other", now=NOW, lifetime=LIFETIME).key_pem)

    with pytest.raises(CertificateFileError):
        certificate.load()

    assert certificate.is_loaded
