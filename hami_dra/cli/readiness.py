"""Preflight: collect, judge, and print the facts."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Final

import typer

from hami_dra.cli.exits import NOT_ALL, fail
from hami_dra.cli.live import Live
from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.migration import Policy
from hami_dra.plain import plain
from hami_dra.preflight.checks import CHECKS
from hami_dra.preflight.collect import collect, probed_family
from hami_dra.preflight.evidence import Hidden, Rate
from hami_dra.preflight.fact import Fact, Status, judge_each
from hami_dra.preflight.measure import measure

_MEASURED: Final = "controller-manager-rate"
_COLOURS: Final = {
    Status.PASS: typer.colors.GREEN,
    Status.WARN: typer.colors.YELLOW,
    Status.FAIL: typer.colors.RED,
    Status.UNKNOWN: typer.colors.MAGENTA,
}


def preflight(live: Live, policy: Policy, *, namespace: str, measured: bool, output: str) -> None:
    """Print how each fact stands; end the command with 3 if one fails."""
    facts = live.run(lambda session: _facts(session, policy, namespace, measured=measured))
    shown = {"json": _as_json, "markdown": _as_markdown, "table": _as_table}[output]
    sys.stdout.write(shown(facts))
    counts = Counter(fact.status for fact in facts)
    summary = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    if counts[Status.FAIL]:
        fail(f"this cluster is not ready: {summary}", code=NOT_ALL)
    said = "nothing fails, but not everything could be read" if counts[Status.UNKNOWN] else "ready"
    typer.echo(f"{said}: {summary}", err=True)


async def _facts(session: Session, policy: Policy, namespace: str, *, measured: bool) -> list[Fact]:
    evidence = await collect(session, policy, namespace=namespace)
    if measured:
        evidence = replace(evidence, rate=await _rate(session, policy))
    checks = [check for check in CHECKS if measured or check.id != _MEASURED]
    return list(judge_each(checks, evidence, policy))


async def _rate(session: Session, policy: Policy) -> Rate | Hidden:
    family = probed_family(policy)
    try:
        return await measure(session, family.device_class, say=lambda t: typer.echo(t, err=True))
    except ApiError as error:
        return Hidden(f"the measurement was refused: {error}")
    except UnreachableError as error:
        # What was found before is worth no less, least of all where the server is slow.
        return Hidden(f"the API server did not stand the measurement: {error}")
    except TimeoutError:
        return Hidden("the claims of a burst of pods did not come within a minute")


def _as_json(facts: list[Fact]) -> str:
    return f"{json.dumps([asdict(fact) for fact in facts], indent=2)}\n"


def _as_markdown(facts: list[Fact]) -> str:
    rows = [
        "| status | fact | found | expected | fix |",
        "|---|---|---|---|---|",
        *(
            f"| {fact.status} | {fact.id} | {_cell(fact.found)} | {_cell(fact.expected)}"
            f" | {_code(fact.fix)} |"
            for fact in facts
        ),
    ]
    return "".join(f"{row}\n" for row in rows)


def _as_table(facts: list[Fact]) -> str:
    width = max(len(fact.id) for fact in facts)
    return "".join(f"{line}\n" for fact in facts for line in _lines(fact, width))


def _lines(fact: Fact, width: int) -> Iterator[str]:
    """Yield the line of a fact, and below it what to do unless it passes."""
    yield f"{_painted(fact.status)}   {fact.id:<{width}}   {plain(fact.found)}"
    if fact.status is not Status.PASS:
        indent = " " * (len(Status.UNKNOWN) + width + 6)
        yield f"{indent}expected: {fact.expected}"
        yield f"{indent}fix: {fact.fix}"


def _painted(status: Status) -> str:
    """Colour a status on a terminal whose user does not object."""
    text = f"{status:<{len(Status.UNKNOWN)}}"
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return text if plain else typer.style(text, fg=_COLOURS[status], bold=True)


def _cell(text: str) -> str:
    """Escape what would end a cell or begin markup of a Markdown table."""
    escaped = plain(text).replace("\\", "\\\\").replace("|", "\\|")
    return escaped.replace("<", "&lt;").replace("`", "\\`")


def _code(text: str) -> str:
    return f"`{plain(text).replace('|', chr(92) + '|').replace('`', chr(39))}`" if text else ""
