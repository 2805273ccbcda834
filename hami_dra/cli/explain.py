"""`hami-dra explain`: what each container asked for, what it gets, and why."""

import json
import textwrap
from collections.abc import Iterator
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Final

import typer

from hami_dra.cli.documents import Document, split
from hami_dra.cli.exits import NOT_ALL, UNREADABLE, USAGE, fail
from hami_dra.cli.explanation import Explanation, explain
from hami_dra.cli.options import Context, Inventory, Kubeconfig, KubeVersion, PolicyFile
from hami_dra.cli.report import markdown
from hami_dra.cli.sources import UnreadableError, read_text
from hami_dra.cli.target import Target, find_target
from hami_dra.cli.workloads import things, unconverted, workloads
from hami_dra.migration import Json, RejectedPod
from hami_dra.migration.revert import revert

EPILOG: Final = (
    "Examples: hami-dra explain deployment.yaml; kubectl get deployment web -o yaml | hami-dra"
    " explain -; hami-dra explain pod/web-0 -n team --context production"
)

_WIDTH: Final = 100
_HEAD: Final = ("CONTAINER", "ASKED", "BECOMES", "WHY")
_COLUMNS: Final = (16, 22, 29, 27)
_GAP: Final = "  "
_LIVE: Final = "pod/"


class Format(StrEnum):
    """How it is printed."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


def explain_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-|pod/NAME",
            help="A manifest, - for standard input, or a pod of a live cluster.",
        ),
    ],
    *,
    output: Annotated[Format, typer.Option("--output", "-o", help="How to print.")] = Format.TABLE,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Where pod/NAME is.")
    ] = "default",
    policy: PolicyFile = None,
    inventory: Inventory = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    kube_version: KubeVersion = "",
) -> None:
    """Say for each container what it asked for in HAMi's words, what it becomes, and why.

    A pod that was converted already is explained from the record in its annotation.
    """
    if what in {"", _LIVE}:  # an unset variable; a path would take it for the current directory
        fail(f"found {what!r}, expected FILE, - or pod/NAME", code=USAGE)
    target = find_target(
        policy,
        kube_version=kube_version,
        inventory=inventory,
        context=context,
        kubeconfig=kubeconfig,
        is_live=what.startswith(_LIVE),
    )
    try:
        found = list(_explained(what, namespace, target, context, kubeconfig))
    except UnreadableError as error:
        fail(str(error), code=UNREADABLE)
    typer.echo(rendered(found, output), nl=False)
    if any(each.rejected for each in found):
        raise typer.Exit(NOT_ALL)


def _explained(
    what: str, namespace: str, target: Target, context: str, kubeconfig: Path | None
) -> Iterator[Explanation]:
    if what.startswith(_LIVE):
        from hami_dra.cli import live_pod  # noqa: PLC0415 - the client takes long to import

        pod = live_pod.read(namespace, what.removeprefix(_LIVE), context or None, kubeconfig)
        yield from _of_value(pod, target)
        return
    for document in split(what, read_text(what)):
        yield from _of_document(document, target)


def _of_document(document: Document, target: Target) -> Iterator[Explanation]:
    yield from _of_value(document.parsed().value, target)


def _of_value(value: Json, target: Target) -> Iterator[Explanation]:
    from hami_dra.cli.patching import patched  # noqa: PLC0415 - only where there is a record

    for thing in things(value):
        found = list(workloads(thing))
        if not found and (why := unconverted(thing, target.policy.managed_names)):
            yield Explanation(thing.title, "", (), (), rejected=why)
        for workload in found:
            try:
                patched(workload.pod, [((), revert(workload.pod))])
            except RejectedPod as rejected:
                yield Explanation(thing.title, "", (), (), rejected=str(rejected))
                continue
            yield from explain(workload, target.policy, target.cards)


def rendered(found: list[Explanation], format_: Format) -> str:
    """Return explanations as text."""
    if format_ is Format.JSON:
        listed = [each.as_json() for each in found]
        return json.dumps(listed, indent=2, ensure_ascii=False) + "\n"
    if not found:
        return "nothing asks for a GPU in HAMi's words\n"
    if format_ is Format.MARKDOWN:
        rows = [("WORKLOAD", *_HEAD, "NOTICES"), *(_markdown_row(each) for each in found)]
        return markdown(rows)
    return "\n".join(_table(found))


def _markdown_row(each: Explanation) -> tuple[str, ...]:
    return (
        each.workload,
        each.container,
        ", ".join(each.asked),
        "; ".join(each.becomes) or "rejected",
        "; ".join(each.why),
        "; ".join([*each.notices, each.rejected] if each.rejected else each.notices),
    )


def _table(found: list[Explanation]) -> Iterator[str]:
    """Yield a block for each workload, none wider than 100 columns."""
    workload = ""
    block = ""
    for each in found:
        if each.workload != workload:
            if block:
                yield block
            workload, block = each.workload, f"{each.workload}\n{_row(_HEAD)}"
        block += _rows(each)
    yield block


def _rows(each: Explanation) -> str:
    cells = ((each.container,), each.asked, each.becomes, each.why)
    wrapped = [
        [
            line
            for text in cell
            for line in textwrap.wrap(text, width, subsequent_indent=" ", break_on_hyphens=False)
        ]
        for cell, width in zip(cells, _COLUMNS, strict=True)
    ]
    lines = "".join(_row(row) for row in zip_longest(*wrapped, fillvalue=""))
    told = [f"notice: {notice}" for notice in each.notices]
    told += [f"rejected: {each.rejected}"] if each.rejected else []
    for text in told:
        lines += (
            textwrap.fill(
                text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
            )
            + "\n"
        )
    return lines


def _row(cells: tuple[str, ...]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, _COLUMNS, strict=True)]
    return f"{_GAP.join(padded).rstrip()}\n"
