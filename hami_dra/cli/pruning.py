"""Prune: show which templates nobody needs and why the others stay, then delete them."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import typer

from hami_dra.cli.exits import NOT_ALL, fail
from hami_dra.cli.live import Live
from hami_dra.cli.table import table
from hami_dra.kube.removal import Effect, Remover
from hami_dra.kube.session import Session
from hami_dra.kube.survey import Judged, judge_all, labelled
from hami_dra.kube.unused import Action, Rule

# A person waits for these; pods that lose the race later than that are the sweeper's.
_LATER_LOOKS_S: Final = (5.0,)

Key = tuple[str, str]
"""Namespace and name."""

_WORDS: Final = {
    Effect.SWEPT: "deleted",
    Effect.PUT_BACK: "put back",
    Effect.OVERTAKEN: "stays",
    Effect.FAILED: "failed",
}
_REASONS: Final = {
    Effect.PUT_BACK: "something referred to it while it was being deleted",
    Effect.OVERTAKEN: "somebody changed it meanwhile",
    Effect.FAILED: "the API server refused or did not answer; try again",
}


@dataclass(frozen=True, slots=True)
class Line:
    """What is shown of a template.

    Attributes:
        namespace: where it is.
        name: its name.
        since: since when it is unused, as far as anybody knows.
        outcome: `unused` (it would go), `stays`, or what was done.
        reason: why.
    """

    namespace: str
    name: str
    since: datetime | None
    outcome: str
    reason: str


def prune(live: Live, *, namespace: str, older_than: timedelta, delete: bool, output: str) -> None:
    """Survey, delete if told to, and print what became of each template."""
    rule = Rule(datetime.now(UTC), older_than, creation_counts=True)
    lines = live.run(lambda session: _prune(session, namespace, rule, delete=delete))
    sys.stdout.write(_shown(lines, output))
    typer.echo(_summary(lines, delete=delete), err=True)
    if any(line.outcome == _WORDS[Effect.FAILED] for line in lines):
        fail("not every unused template could be deleted", code=NOT_ALL)


async def _prune(session: Session, namespace: str, rule: Rule, *, delete: bool) -> list[Line]:
    found = await labelled(session, namespace)
    judged = [
        each
        for within, templates in sorted(found.items())
        for each in await judge_all(session, within, templates, rule)
    ]
    effects = await _delete(session, judged) if delete else {}
    return [_line(each, effects.get((each.namespace, each.name))) for each in judged]


async def _delete(session: Session, judged: Iterable[Judged]) -> dict[Key, Effect]:
    """Delete what is unused with the sweeper's own core."""
    remover = Remover(session, later_looks_s=_LATER_LOOKS_S)
    doomed: dict[str, list[Judged]] = {}
    for each in judged:
        if each.judgement.action is Action.SWEEP:
            doomed.setdefault(each.namespace, []).append(each)
    effects: dict[Key, Effect] = {}
    for namespace, those in doomed.items():
        done = await remover.remove(namespace, those)
        effects |= {(namespace, name): effect for name, effect in done.items()}
    if doomed:
        typer.echo("looking again in 5 seconds whether anything needs them after all", err=True)
    return effects | await remover.look_later()


def _line(judged: Judged, effect: Effect | None) -> Line:
    judgement = judged.judgement
    if effect is not None:
        outcome, reason = _WORDS[effect], _REASONS.get(effect, judgement.reason)
    else:
        outcome = "unused" if judgement.action is Action.SWEEP else "stays"
        reason = judgement.reason
    return Line(judged.namespace, judged.name, judgement.since, outcome, reason)


def _shown(lines: list[Line], output: str) -> str:
    if output == "json":
        return f"{json.dumps([_plain(line) for line in lines], indent=2)}\n"
    if not lines:
        return ""
    head = ("NAMESPACE", "TEMPLATE", "UNUSED SINCE", "OUTCOME", "REASON")
    return table(
        [
            head,
            *(
                (one.namespace, one.name, _moment(one.since) or "-", one.outcome, one.reason)
                for one in lines
            ),
        ]
    )


def _plain(line: Line) -> Mapping[str, object]:
    return {
        "namespace": line.namespace,
        "name": line.name,
        "unusedSince": _moment(line.since) or None,
        "outcome": line.outcome,
        "reason": line.reason,
    }


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _summary(lines: list[Line], *, delete: bool) -> str:
    counts = {word: sum(line.outcome == word for line in lines) for word in ("unused", "deleted")}
    if delete:
        return f"deleted {counts['deleted']} of {len(lines)} templates"
    if not counts["unused"]:
        return f"nothing to delete: {len(lines)} templates, none of them unused for long enough"
    return (
        f"nothing was deleted; {counts['unused']} of {len(lines)} templates can go,"
        " repeat with --yes to delete them"
    )
