"""The command `hami-dra-node`: serve a node's cards, or tell what would be served."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

import uvloop

from hami_dra.kube import incluster
from hami_dra.kube.errors import ConfigurationError
from hami_dra.logs import configure
from hami_dra.node import check as checking
from hami_dra.node import settings as setting
from hami_dra.node.agent import Agent
from hami_dra.node.backend import BackendError
from hami_dra.node.choose import choose_backend, ending_for_a_driver
from hami_dra.node.settings import PREFIX, Settings
from hami_dra.node.sockets import SocketPathError
from hami_dra.node.turns import SecondAgentError
from hami_dra.variables import SettingsError, add_flags

_OK: Final = 0
_FAILED: Final = 1
_USAGE: Final = 2
_NOT_READY: Final = 3

# What makes no difference to what `check` looks at.
_RUN_ONLY: Final = frozenset(
    {
        *("instance", "address", "port", "account", "kubeconfig", "context"),
        *("log_format", "log_level", "core_policy", "allow_disable"),
    }
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; this is the console script's entry point."""
    sys.exit(command(argv))


def command(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments ask for and return the exit code."""
    parser = _parser()
    given = vars(parser.parse_args(argv))
    name: str = given.pop("command")
    flags = {key: value for key, value in given.items() if value is not None}
    try:
        settings = setting.read(os.environ, flags)
    except SettingsError as error:
        sys.stderr.write(f"hami-dra-node {name}: {error}\n")
        return _USAGE
    return _check(settings) if name == "check" else _run(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hami-dra-node", description="The node agent of hami-dra.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = "Publish this node's cards and prepare the claims of its pods, until a signal."
    check = (
        "Tell what would be published from this node and what is missing; changes nothing. Ends"
        " with 0 when all is well and with 3 when something needs a person."
    )
    for name, text, left_out in (("run", run, frozenset[str]()), ("check", check, _RUN_ONLY)):
        command = commands.add_parser(name, description=text, help=text, allow_abbrev=False)
        shown = {key: what for key, what in setting.described().items() if key not in left_out}
        add_flags(command, shown, PREFIX)
    return parser


def _run(settings: Settings) -> int:
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
        sys.stderr.write(f"hami-dra-node: {error}\n")
        return _FAILED
    return _OK


def _check(settings: Settings) -> int:
    found = checking.findings(settings)
    sys.stdout.write(f"{checking.render(found)}\n")
    return _OK if found.is_well else _NOT_READY


async def _serve(settings: Settings) -> None:
    backend = choose_backend(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    found = incluster.find(settings.kubeconfig, settings.context, settings.account)
    async with await found as session, ending_for_a_driver(stop):
        await Agent(settings, backend, session).run(stop)


if __name__ == "__main__":
    main()
