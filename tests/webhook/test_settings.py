"""Settings come from the environment, flags win, and nonsense is refused."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from certs.bundle import Lifetimes
from hami_dra.logs import LogFormat
from webhook.__main__ import app
from webhook.settings import CertificateMode, Settings


def test_every_field_is_documented() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_help_says_what_holds_when_nothing_is_set() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout
    joined = "".join(said.split())

    for name, field in Settings.model_fields.items():
        is_told = "Default:" in (field.description or "") or f"[default:{field.default}]" in joined
        assert is_told or field.default in {None, False}, name
    assert "PydanticUndefined" not in said


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_PORT", "9000")
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_STANDALONE", "true")
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_LOG_FORMAT", "json")
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_HOST", "")

    assert Settings().port == 9000
    assert Settings(port=1).port == 1
    assert Settings().log_format is LogFormat.JSON
    assert Settings().host is None


def test_unused_templates_stay_for_a_week_unless_told_otherwise() -> None:
    assert Settings(standalone=True).template_ttl == timedelta(days=7)
    assert not Settings(standalone=True, template_ttl_s=0).template_ttl
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        Settings(standalone=True, template_ttl_s=-1)


@pytest.mark.parametrize("files", [{}, {"tls_cert": Path("c")}, {"tls_key": Path("k")}])
def test_a_cluster_needs_a_certificate(files: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="--tls-cert and --tls-key"):
        Settings(**files)


def test_replicas_that_sign_for_themselves_need_no_files() -> None:
    settings = Settings(certificate_mode=CertificateMode.SECRET, namespace="ours")

    assert settings.place.secrets == "/api/v1/namespaces/ours/secrets"
    assert settings.place.secret == "hami-dra-webhook-ca"
    assert set(settings.place.configurations.values()) == {"hami-dra-webhook"}
    assert settings.lifetimes == Lifetimes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tls_cert": Path("c")}, "expected either"),
        ({"leaf_lifetime_s": 60, "authority_lifetime_s": 100}, "at most a third"),
        ({"leaf_lifetime_s": 0}, "greater than or equal to 1"),
    ],
)
def test_certificates_that_contradict_each_other_are_refused(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Settings(certificate_mode=CertificateMode.SECRET, **given)


def test_a_wrong_policy_file_ends_the_start(tmp_path: Path) -> None:
    """A webhook that means something else than its policy says must not answer."""
    file = tmp_path / "policy.yaml"
    file.write_text("apiVersion: hami-dra.io/v1alpha1\nkind: Policy\nhideCard: true\n")

    # Processes of their own, because starting sets up logging for good.
    by_flag, by_environment = (
        subprocess.run(
            [sys.executable, "-m", "webhook", "--standalone", *arguments],
            env=dict(os.environ) | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        for arguments, environment in (
            (["--policy", str(file)], {}),
            ([], {"HAMI_DRA_WEBHOOK_POLICY": str(file)}),
        )
    )

    for ended in (by_flag, by_environment):
        assert ended.returncode == 1
        assert f"{file}:3: hideCard: unknown key, did you mean hideCards?" in ended.stderr
