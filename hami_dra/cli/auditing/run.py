"""Audit: read, judge, print, and end with the code that says how it went."""

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer

from hami_dra.cli.auditing.findings import Audit, Outcome
from hami_dra.cli.auditing.page import as_html
from hami_dra.cli.auditing.reading import Request
from hami_dra.cli.auditing.reading import audit as read
from hami_dra.cli.auditing.text import as_markdown, as_table
from hami_dra.cli.exits import NOT_ALL, UNREADABLE, fail
from hami_dra.cli.inventory import read_cards
from hami_dra.cli.live import Live
from hami_dra.cli.output import write
from hami_dra.kube.session import Session
from hami_dra.migration import Policy
from hami_dra.plain import plain

_FORMATS: Final[Mapping[str, Callable[[Audit], str]]] = {
    "table": as_table,
    "json": lambda audit: json.dumps(audit.as_json(), indent=2, ensure_ascii=False) + "\n",
    "markdown": as_markdown,
    "html": as_html,
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says.

    Attributes:
        namespace: the only one to look at; empty for all.
        inventory: a file of cards; empty for the cluster's.
        policy_file: None for the default.
        html: where a report goes as well.
        output: how the audit is printed.
        date: as it is printed; empty for now.
    """

    namespace: str
    inventory: str
    policy_file: Path | None
    html: Path | None
    output: str
    date: str

    def command(self, live: Live) -> str:
        """Return the command line, without what differs from host to host."""
        words = ["hami-dra", "audit", *(["-n", self.namespace] if self.namespace else ["-A"])]
        named = {
            "--context": live.context,
            "--policy": self.policy_file,
            "--inventory": self.inventory,
        }
        for flag, value in named.items():
            words += [flag, str(value)] if value else []
        return shlex.join(words)


def audit(live: Live, policy: Policy, asked: Asked) -> None:
    """Audit a cluster; end the command with 1 if a part cannot be read, 3 if something is rejected.

    Raises:
        UnreadableError: if the inventory cannot be read, or the report not be written.
    """
    request = Request(
        policy=policy,
        namespace=asked.namespace,
        cards=read_cards(asked.inventory, policy) if asked.inventory else None,
        command=asked.command(live),
        date=asked.date or datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    progress = _Progress()

    async def work(session: Session) -> Audit:
        try:
            return await read(session, request, progress)
        finally:
            progress.clear()

    found = live.run(work)
    if asked.html is not None:
        write(asked.html, as_html(found).encode())
    typer.echo(_FORMATS[asked.output](found), nl=False)
    _end(found)


def _end(found: Audit) -> None:
    for each in found.unread:
        typer.echo(f"hami-dra: {plain(str(each))}", err=True)
    if found.unread:
        raise typer.Exit(UNREADABLE)
    if rejected := found.everything.counts[Outcome.REJECTED]:
        fail(f"{rejected} of {found.everything.workloads} workloads are rejected", code=NOT_ALL)


class _Progress:
    """Tells a terminal what is being read; nobody else."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def __call__(self, what: str, count: int) -> None:
        """Show it in place of what was shown before."""
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[Kreading {what}: {count}" if count else f"\r\x1b[K{what}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Show nothing any more."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
