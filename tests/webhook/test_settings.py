"""Settings come from the environment, flags win, and nonsense is refused."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from webhook.logs import LogFormat
from webhook.settings import Settings


def test_every_field_is_documented() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_PORT", "9000")
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_STANDALONE", "true")
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_LOG_FORMAT", "json")
    monkeypatch.setenv("HAMI_DRA_WEBHOOK_HOST", "")

    assert Settings().port == 9000
    assert Settings(port=1).port == 1
    assert Settings().log_format is LogFormat.JSON
    assert Settings().host is None


@pytest.mark.parametrize("files", [{}, {"tls_cert": Path("c")}, {"tls_key": Path("k")}])
def test_a_cluster_needs_a_certificate(files: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="--tls-cert and --tls-key"):
        Settings(**files)
