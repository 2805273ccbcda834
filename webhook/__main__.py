"""The command `hami-dra-webhook`: read settings, put the parts together, serve."""

import asyncio
import ctypes
import gc
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from certs.authority import CertificateError
from certs.leaf import service_names
from hami_dra.kube import incluster
from hami_dra.kube.errors import ConfigurationError
from hami_dra.kube.session import Session
from hami_dra.kube.sweeper import Sweeper
from hami_dra.kube.templates import MemoryTemplates
from hami_dra.logs import LogFormat, configure
from hami_dra.migration import Policy
from webhook.app import Dependencies, create_app
from webhook.certificate import Certificate
from webhook.certificates.files import CertificateFileError, CertificateFiles
from webhook.certificates.metrics import CertificateCollector
from webhook.certificates.secret import CertificateSecret
from webhook.cluster import Cluster
from webhook.metrics import EventsCollector, TemplateCollector
from webhook.server import Server
from webhook.settings import CertificateMode, Settings
from webhook.standalone import LOOPBACK, instructions, is_address, made_up_certificate

_log = logging.getLogger("webhook")

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _option(field: str) -> Any:  # noqa: ANN401 - typer's own type
    """Describe a flag by the setting that it overrides."""
    names = [f"--{field.replace('_', '-')}"]
    setting = Settings.model_fields[field]
    described = " ".join((setting.description or "").split())
    if setting.default not in {None, False, PydanticUndefined} and "Default:" not in described:
        described += f" [default: {setting.default}]"
    help_text = f"{described} [env: HAMI_DRA_WEBHOOK_{field.upper()}]"
    return typer.Option(*names, help=help_text, show_default=False)


@app.command()
def serve(
    *,
    host: Annotated[str | None, _option("host")] = None,
    port: Annotated[int | None, _option("port")] = None,
    tls_cert: Annotated[Path | None, _option("tls_cert")] = None,
    tls_key: Annotated[Path | None, _option("tls_key")] = None,
    certificate_mode: Annotated[CertificateMode | None, _option("certificate_mode")] = None,
    namespace: Annotated[str | None, _option("namespace")] = None,
    service_name: Annotated[str | None, _option("service_name")] = None,
    certificate_secret: Annotated[str | None, _option("certificate_secret")] = None,
    mutating_webhook_configuration: Annotated[
        str | None, _option("mutating_webhook_configuration")
    ] = None,
    validating_webhook_configuration: Annotated[
        str | None, _option("validating_webhook_configuration")
    ] = None,
    authority_lifetime_s: Annotated[int | None, _option("authority_lifetime_s")] = None,
    leaf_lifetime_s: Annotated[int | None, _option("leaf_lifetime_s")] = None,
    template_ttl_s: Annotated[int | None, _option("template_ttl_s")] = None,
    sweep_period_s: Annotated[int | None, _option("sweep_period_s")] = None,
    quota_overdue_s: Annotated[int | None, _option("quota_overdue_s")] = None,
    termination_delay_s: Annotated[float | None, _option("termination_delay_s")] = None,
    account: Annotated[Path | None, _option("account")] = None,
    kubeconfig: Annotated[Path | None, _option("kubeconfig")] = None,
    context: Annotated[str | None, _option("context")] = None,
    policy: Annotated[Path | None, _option("policy")] = None,
    standalone: Annotated[bool | None, _option("standalone")] = None,
    log_format: Annotated[LogFormat | None, _option("log_format")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
) -> None:
    """Answer admission reviews: pods with legacy GPU resources become pods with claims."""
    flags = {name: value for name, value in locals().items() if value is not None}
    try:
        settings = Settings(**flags)
    except ValidationError as error:
        raise typer.BadParameter(_explain(error)) from None
    configure(settings.log_format, settings.log_level, sys.stderr)
    try:
        meaning = _read(settings.policy) if settings.policy else Policy()
        serving = _standalone if settings.standalone else _in_cluster
        _settle()
        uvloop.run(serving(settings, meaning))
    except (CertificateError, CertificateFileError, ConfigurationError) as error:
        typer.echo(f"hami-dra-webhook: {error}", err=True)
        raise typer.Exit(1) from None


def main() -> None:
    """Run the command; this is the console script's entry point."""
    app(prog_name="hami-dra-webhook")


def _read(policy: Path) -> Policy:
    """Read a policy file.

    Raises:
        ConfigurationError: if it is wrong.
    """
    # Its parser takes 2 MiB, which a webhook without such a file need not hold.
    from hami_dra.policies import PolicyFileError, load  # noqa: PLC0415

    try:
        return load(policy)
    except PolicyFileError as error:
        raise ConfigurationError(str(error)) from None


def _settle() -> None:
    """Take what was imported, which stays for good, out of the garbage collector's sight.

    A full pass over it stops every review for tens of milliseconds and finds nothing.
    """
    gc.collect()
    gc.freeze()
    # Importing leaves 2 MiB of C's heap empty; other libraries than glibc keep no such rest.
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


async def _standalone(settings: Settings, policy: Policy) -> None:
    host = settings.host or LOOPBACK
    with made_up_certificate(host) as (certificate, authority_file):
        await Server(
            create_app(Dependencies(templates=MemoryTemplates(), policy=lambda: policy)),
            certificate,
            host=host,
            port=settings.port,
            announce=lambda url: typer.echo(instructions(url, authority_file)),
        ).serve()


async def _in_cluster(settings: Settings, policy: Policy) -> None:
    certificate = Certificate()
    files = _files(settings, certificate)
    found = incluster.find(settings.kubeconfig, settings.context, settings.account)
    async with await found as session:
        source = files or _secret(settings, certificate, session)
        cluster = Cluster(
            session,
            policy,
            home=settings.namespace,
            quota_overdue_s=settings.quota_overdue_s,
        )
        sweeper = Sweeper(session, ttl=settings.template_ttl, period_s=settings.sweep_period_s)
        server = Server(
            create_app(_dependencies(certificate, cluster, sweeper)),
            certificate,
            host=settings.host,
            port=settings.port,
            termination_delay_s=settings.termination_delay_s,
            announce=lambda url: _log.info("listening on %s", url),
        )
        async with asyncio.TaskGroup() as tasks:
            running = [cluster.run(), source.run()]
            if settings.template_ttl_s:
                running.append(sweeper.run())
            following = [tasks.create_task(each) for each in running]
            await certificate.loaded()
            await server.serve()
            for task in following:
                task.cancel()


def _dependencies(certificate: Certificate, cluster: Cluster, sweeper: Sweeper) -> Dependencies:
    """Hand the app what it needs of a cluster."""
    return Dependencies(
        templates=cluster.templates,
        policy=cluster.policy,
        cards=cluster.cards,
        limits=cluster.limits,
        tell=cluster.events.tell,
        quotas=cluster.quotas,
        checks={"certificate": lambda: certificate.is_valid, **cluster.checks},
        troubles={
            "certificate": lambda: certificate.trouble,
            "template sweeper": lambda: sweeper.trouble,
        },
        collectors=(
            CertificateCollector(certificate),
            EventsCollector(cluster.events),
            TemplateCollector(cluster.templates, sweeper),
            cluster.quotas,
        ),
    )


def _files(settings: Settings, certificate: Certificate) -> CertificateFiles | None:
    """Load the files, if the certificate comes from files; nothing works without them."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    files = CertificateFiles(certificate, settings.tls_cert, settings.tls_key)
    files.load()
    return files


def _secret(settings: Settings, certificate: Certificate, session: Session) -> CertificateSecret:
    host = settings.host or ""
    addresses = [host] if is_address(host) else []
    return CertificateSecret(
        session,
        certificate,
        place=settings.place,
        names=service_names(settings.service_name, settings.namespace, *addresses),
        lifetimes=settings.lifetimes,
    )


def _explain(error: ValidationError) -> str:
    """Say which setting is wrong and why."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in error.errors()
    )


if __name__ == "__main__":
    main()
