"""The command `hami-dra-node`: serve a node's cards, or tell what would be served."""

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from pydantic import ValidationError

from hami_dra.kube import incluster
from hami_dra.kube.errors import ConfigurationError
from hami_dra.kube.session import Session
from hami_dra.logs import LogFormat, configure
from hami_dra.node import check as checking
from hami_dra.node.agent import Agent
from hami_dra.node.backend import BackendError
from hami_dra.node.choose import choose_backend
from hami_dra.node.settings import PREFIX, CdiMode, Devices, Settings
from hami_dra.node.sockets import SocketPathError
from hami_dra.node.turns import SecondAgentError

_log = logging.getLogger("hami_dra.node")

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _option(field: str) -> Any:  # noqa: ANN401 - typer's own type
    """Describe a flag by the setting that it overrides."""
    described = " ".join((Settings.model_fields[field].description or "").split())
    help_text = f"{described} [env: {PREFIX}{field.upper()}]"
    return typer.Option(f"--{field.replace('_', '-')}", help=help_text, show_default=False)


Name = Annotated[str | None, _option("name")]
Driver = Annotated[str | None, _option("driver")]
Source = Annotated[Devices | None, _option("devices")]
Profile = Annotated[str | None, _option("profile")]
Count = Annotated[int | None, _option("count")]
SplitCount = Annotated[int | None, _option("split_count")]
KubeletDirectory = Annotated[Path | None, _option("kubelet_directory")]
Mode = Annotated[CdiMode | None, _option("cdi_mode")]
CdiDirectory = Annotated[Path | None, _option("cdi_directory")]
RunDirectory = Annotated[Path | None, _option("run_directory")]
Kubeconfig = Annotated[Path | None, _option("kubeconfig")]
Context = Annotated[str | None, _option("context")]


@app.command()
def run(
    *,
    name: Name = None,
    driver: Driver = None,
    devices: Source = None,
    profile: Profile = None,
    count: Count = None,
    split_count: SplitCount = None,
    kubelet_directory: KubeletDirectory = None,
    cdi_directory: CdiDirectory = None,
    cdi_mode: Mode = None,
    run_directory: RunDirectory = None,
    instance: Annotated[str | None, _option("instance")] = None,
    library: Annotated[Path | None, _option("library")] = None,
    address: Annotated[str | None, _option("address")] = None,
    port: Annotated[int | None, _option("port")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    log_format: Annotated[LogFormat | None, _option("log_format")] = None,
    log_level: Annotated[str | None, _option("log_level")] = None,
) -> None:
    """Publish this node's cards and prepare the claims of its pods, until a signal."""
    settings = _settings(locals())
    configure(settings.log_format, settings.log_level, sys.stderr)
    try:
        uvloop.run(_serve(settings))
    except (
        BackendError,
        ConfigurationError,
        SecondAgentError,
        SocketPathError,
        OSError,
    ) as error:
        typer.echo(f"hami-dra-node: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def check(
    *,
    name: Name = None,
    driver: Driver = None,
    devices: Source = None,
    profile: Profile = None,
    count: Count = None,
    split_count: SplitCount = None,
    kubelet_directory: KubeletDirectory = None,
    cdi_directory: CdiDirectory = None,
    cdi_mode: Mode = None,
    run_directory: RunDirectory = None,
) -> None:
    """Tell what would be published from this node and what is missing; changes nothing.

    Ends with 0 when all is well and with 3 when something needs a person.
    """
    found = checking.findings(_settings(locals()))
    typer.echo(checking.render(found))
    if not found.is_well:
        raise typer.Exit(3)


def main() -> None:
    """Run the command; this is the console script's entry point."""
    app(prog_name="hami-dra-node")


async def _serve(settings: Settings) -> None:
    backend = choose_backend(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with await _connect(settings) as session:
        await Agent(settings, backend, session).run(stop)


async def _connect(settings: Settings) -> Session:
    if settings.kubeconfig is None and settings.context is None and incluster.has_account():
        return await incluster.connect()
    return await Session.connect(settings.kubeconfig, settings.context)


def _settings(given: dict[str, Any]) -> Settings:
    flags = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**flags)
    except ValidationError as error:
        raise typer.BadParameter(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    """Say which setting is wrong and why."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}" for one in error.errors()
    )


if __name__ == "__main__":
    main()
