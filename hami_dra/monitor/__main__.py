"""The command `hami-dra-monitor`: show what the cards of a node are used for."""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from hami_dra.logs import configure
from hami_dra.monitor import cards, page, pods
from hami_dra.monitor import settings as setting
from hami_dra.monitor.look import Looker
from hami_dra.monitor.metrics import NodeCollector
from hami_dra.monitor.pages import Pages
from hami_dra.monitor.settings import PREFIX, Settings
from hami_dra.node.backend import BackendError
from hami_dra.serving import Server
from hami_dra.variables import SettingsError, add_flags

_OK: Final = 0
_FAILED: Final = 1
_USAGE: Final = 2

_ENDS: Final = (signal.SIGINT, signal.SIGTERM)

_SWITCHES: Final = ("--legacy-metrics",)
"""Flags that mean true where nothing follows them, as HAMi's do."""

_ABOUT: Final = """\
Show what the cards of this node are used for: a page at /, and /metrics for Prometheus with HAMi's
names. Reads the files of claims that hami-dra-node keeps, asks the kubelet which container has
which claim, and the cards what they do; needs no right in the cluster and writes nothing."""

_EXAMPLES: Final = """\
examples:
  hami-dra-monitor --name "$(hostname)" --port 31995
  hami-dra-monitor --name try --devices simulated --profile l4-24g --count 2
  curl localhost:31995/metrics

An agent's variables (HAMI_DRA_NODE_NAME, _DRIVER, _DEVICES, _PROFILE, _COUNT, _RUN_DIRECTORY) count
where the monitor's are not set, so that one ConfigMap tells both."""

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; this is the console script's entry point."""
    sys.exit(command(argv))


def command(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal, and return the exit code."""
    given = vars(_parser().parse_args(argv))
    flags = {key: value for key, value in given.items() if value is not None}
    try:
        settings = setting.read(os.environ, flags)
    except SettingsError as error:
        sys.stderr.write(f"hami-dra-monitor: {error}\n")
        return _USAGE
    configure(settings.log_format, settings.log_level, sys.stderr)
    try:
        serve(settings)
    except (BackendError, OSError) as error:
        sys.stderr.write(f"hami-dra-monitor: {error}\n")
        return _FAILED
    return _OK


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT, which end it at once.

    Raises:
        BackendError: if the cards of the settings cannot be on this node.
        OSError: if it cannot listen.
    """
    looker = Looker(
        settings.name,
        cards.choose(settings),
        settings.run_directory / "claims",
        lambda: pods.list_containers(settings.pod_resources, settings.driver),
    )
    registry = CollectorRegistry()
    registry.register(NodeCollector(looker, legacy=settings.legacy_metrics))
    ProcessCollector(registry=registry)

    def shown(query: str) -> str:
        snapshot, now = looker.look(), datetime.now(UTC)
        return page.as_html(snapshot, looker.problems(), now, is_still=query == page.STILL)

    server = Server(settings.address, settings.port, Pages(registry, shown, looker.problems))
    # Blocked in all threads, so that this one gets them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    threading.Thread(target=server.serve, name="server", daemon=True).start()
    _log.info("page and metrics on port %d", server.port)
    # Answers in progress end with the process: nobody waits for them longer than for a new one.
    _log.info("ends with %s", signal.Signals(signal.sigwait(_ENDS)).name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hami-dra-monitor",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_flags(parser, setting.described(), PREFIX, switches=_SWITCHES)
    return parser


if __name__ == "__main__":
    main()
