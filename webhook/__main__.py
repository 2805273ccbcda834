"""The command `hami-dra-webhook`: read settings, put the parts together, serve."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from pydantic import ValidationError

from certs.authority import CertificateError
from hami_dra.kube.errors import ConfigurationError
from hami_dra.kube.session import Session
from hami_dra.kube.templates import MemoryTemplates
from hami_dra.migration import Policy
from webhook.app import Dependencies, create_app
from webhook.certificate import Certificate, CertificateFileError
from webhook.cluster import Cluster
from webhook.logs import LogFormat, configure
from webhook.server import Server
from webhook.settings import Settings
from webhook.standalone import LOOPBACK, instructions, made_up_certificate

_log = logging.getLogger("webhook")

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _option(field: str) -> Any:  # noqa: ANN401 - typer's own type
    """Describe a flag by the setting that it overrides."""
    names = [f"--{field.replace('_', '-')}"]
    described = " ".join((Settings.model_fields[field].description or "").split())
    help_text = f"{described} [env: HAMI_DRA_WEBHOOK_{field.upper()}]"
    return typer.Option(*names, help=help_text, show_default=False)


@app.command()
def serve(
    *,
    host: Annotated[str | None, _option("host")] = None,
    port: Annotated[int | None, _option("port")] = None,
    tls_cert: Annotated[Path | None, _option("tls_cert")] = None,
    tls_key: Annotated[Path | None, _option("tls_key")] = None,
    kubeconfig: Annotated[Path | None, _option("kubeconfig")] = None,
    context: Annotated[str | None, _option("context")] = None,
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
        uvloop.run(_standalone(settings) if settings.standalone else _in_cluster(settings))
    except (CertificateError, CertificateFileError, ConfigurationError) as error:
        typer.echo(f"hami-dra-webhook: {error}", err=True)
        raise typer.Exit(1) from None


def main() -> None:
    """Run the command; this is the console script's entry point."""
    app(prog_name="hami-dra-webhook")


async def _standalone(settings: Settings) -> None:
    host = settings.host or LOOPBACK
    with made_up_certificate(host) as (certificate, authority_file):
        await Server(
            create_app(Dependencies(templates=MemoryTemplates())),
            certificate,
            host=host,
            port=settings.port,
            announce=lambda url: typer.echo(instructions(url, authority_file)),
        ).serve()


async def _in_cluster(settings: Settings) -> None:
    if settings.tls_cert is None or settings.tls_key is None:
        raise AssertionError("unreachable: Settings demands both in a cluster")
    certificate = Certificate(settings.tls_cert, settings.tls_key)
    certificate.load()
    async with await Session.connect(settings.kubeconfig, settings.context) as session:
        cluster = Cluster(session, Policy())
        dependencies = Dependencies(
            templates=cluster.templates,
            policy=cluster.policy,
            cards=cluster.cards,
            limits=cluster.limits,
            checks={"certificate": lambda: certificate.is_loaded, **cluster.checks},
        )
        server = Server(
            create_app(dependencies),
            certificate,
            host=settings.host,
            port=settings.port,
            announce=lambda url: _log.info("listening on %s", url),
        )
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(cluster.run())
            await server.serve()
            following.cancel()


def _explain(error: ValidationError) -> str:
    """Say which setting is wrong and why."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in error.errors()
    )


if __name__ == "__main__":
    main()
