"""Where the webhook runs: environment and flags. What a migration means is Policy, not this."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from webhook.logs import LogFormat


class Settings(BaseSettings):
    """Environment variables HAMI_DRA_WEBHOOK_<FIELD>; flags of the same name win."""

    model_config = SettingsConfigDict(
        env_prefix="HAMI_DRA_WEBHOOK_",
        env_ignore_empty=True,
        frozen=True,
        use_attribute_docstrings=True,
    )

    host: str | None = None
    """Address to listen on. Default: every address of both families, because a pod has one of
    either; loopback only when standalone."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8443
    """TCP port; above 1023, so that no privilege is needed. 0 lets the system choose."""
    tls_cert: Path | None = None
    """PEM file with the serving certificate and its intermediates. Required in a cluster."""
    tls_key: Path | None = None
    """PEM file with the certificate's private key, unencrypted. Required in a cluster."""
    kubeconfig: Path | None = None
    """How to reach the API server. Default: KUBECONFIG, the pod's service account, the home."""
    context: str | None = None
    """Context of the kubeconfig. Default: its current one."""
    standalone: bool = False
    """Answer reviews without a cluster: templates stay in memory, the certificate is made up."""
    log_format: LogFormat = LogFormat.AUTO
    """json, text, or auto: text on a terminal and JSON elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines to write; every review is one line at info."""

    @model_validator(mode="after")
    def _have_a_certificate(self) -> Self:
        if not self.standalone and (self.tls_cert is None or self.tls_key is None):
            raise ValueError(
                "found no certificate: name its files with --tls-cert and --tls-key"
                " (HAMI_DRA_WEBHOOK_TLS_CERT, HAMI_DRA_WEBHOOK_TLS_KEY), or try --standalone"
            )
        return self
