"""Where the webhook runs: environment and flags. What a migration means is Policy, not this."""

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from certs.bundle import Lifetimes
from certs.secret import Place
from hami_dra.kube.incluster import ACCOUNT
from hami_dra.kube.quotas import OVERDUE_S
from hami_dra.kube.sweeper import PERIOD_S
from hami_dra.kube.unused import DEFAULT_TTL
from hami_dra.logs import LogFormat
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE

Seconds = Annotated[int, Field(ge=1)]

_DAY_S = 24 * 60 * 60


class CertificateMode(StrEnum):
    """Where the serving certificate comes from."""

    FILES = "files"
    SECRET = "secret"  # noqa: S105 - a kind of object


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
    """PEM file with the serving certificate and its intermediates, read again when it changes.
    Required in the mode files."""
    tls_key: Path | None = None
    """PEM file with the certificate's private key, unencrypted. Required in the mode files."""
    certificate_mode: CertificateMode = CertificateMode.FILES
    """files: somebody else renews --tls-cert and --tls-key. secret: the replicas share an authority
    in a Secret, sign their own certificates and keep the caBundle of the registrations right."""
    namespace: str = SYSTEM_NAMESPACE
    """Namespace of the Service, the Secret and the quota ledgers; part of the name in the
    certificate."""
    service_name: str = NAME
    """Service by which the API server reaches us; part of the name in the certificate."""
    certificate_secret: str = f"{NAME}-ca"
    """Secret with the authority, in the mode secret; made when absent."""
    mutating_webhook_configuration: str = NAME
    """MutatingWebhookConfiguration whose caBundle is kept right, in the mode secret."""
    validating_webhook_configuration: str = NAME
    """ValidatingWebhookConfiguration whose caBundle is kept right, in the mode secret."""
    authority_lifetime_s: Seconds = 365 * _DAY_S
    """Seconds an authority is valid, in the mode secret; after two thirds another one follows."""
    leaf_lifetime_s: Seconds = 30 * _DAY_S
    """Seconds a serving certificate is valid, in the mode secret; at most a third of the
    authority's. It is renewed after two thirds."""
    template_ttl_s: Annotated[int, Field(ge=0)] = int(DEFAULT_TTL.total_seconds())
    """Seconds that a template of ours stays unused before it is removed; 0 keeps all for ever."""
    sweep_period_s: Seconds = int(PERIOD_S)
    """Seconds between two looks for unused templates, at most."""
    quota_overdue_s: Seconds = int(OVERDUE_S)
    """Seconds after which a claim that a quota had room for, and that never came, is forgotten.
    Must be longer than the API server's --request-timeout."""
    termination_delay_s: Annotated[float, Field(ge=0)] = 8
    """Seconds to serve on after SIGTERM, while the Service still leads the API server here. With
    15 s for reviews in progress it must fit into the pod's terminationGracePeriodSeconds."""
    account: Path = ACCOUNT
    """Directory with the pod's service account: token and ca.crt."""
    kubeconfig: Path | None = None
    """How to reach the API server. Default: KUBECONFIG, the pod's service account, the home."""
    context: str | None = None
    """Context of the kubeconfig. Default: its current one."""
    policy: Path | None = None
    """Policy file, which says what a migration means. Default: NVIDIA's resources as HAMi has them;
    `hami-dra policy show` prints that file."""
    standalone: bool = False
    """Answer reviews without a cluster: templates stay in memory, the certificate is made up."""
    log_format: LogFormat = LogFormat.AUTO
    """json, text, or auto: text on a terminal and JSON elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines to write: debug, info, warning or error. Every review is one at
    info."""

    @property
    def place(self) -> Place:
        """Where the authority's Secret and the registrations are."""
        return Place(
            namespace=self.namespace,
            secret=self.certificate_secret,
            mutating=self.mutating_webhook_configuration,
            validating=self.validating_webhook_configuration,
        )

    @property
    def lifetimes(self) -> Lifetimes:
        """How long certificates are valid, in the mode secret."""
        return Lifetimes(
            authority=timedelta(seconds=self.authority_lifetime_s),
            leaf=timedelta(seconds=self.leaf_lifetime_s),
        )

    @property
    def template_ttl(self) -> timedelta:
        """How long a template stays unused before it is removed."""
        return timedelta(seconds=self.template_ttl_s)

    @model_validator(mode="after")
    def _have_a_certificate(self) -> Self:
        has_files = self.tls_cert is not None and self.tls_key is not None
        if self.certificate_mode is CertificateMode.SECRET:
            if self.tls_cert or self.tls_key:
                raise ValueError(
                    "found --tls-cert or --tls-key beside --certificate-mode secret, expected"
                    " either; leave one out"
                )
            _ = self.lifetimes  # judges itself
        elif not self.standalone and not has_files:
            raise ValueError(
                "found no certificate: name its files with --tls-cert and --tls-key"
                " (HAMI_DRA_WEBHOOK_TLS_CERT, HAMI_DRA_WEBHOOK_TLS_KEY), let the replicas sign"
                " their own with --certificate-mode secret, or try --standalone"
            )
        return self
