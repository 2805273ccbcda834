"""What the commands that read manifests have in common: all inputs, whatever is wrong with one."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import typer

from hami_dra.cli.exits import NOT_ALL, UNREADABLE, fail
from hami_dra.cli.report import Report, ReportFormat, Result, rendered
from hami_dra.cli.sources import Source, UnreadableError, files

_WORTH_A_BAR: Final = 200

_Content: TypeAlias = bytes | UnreadableError


def inputs(names: Iterable[str], kustomizations: Iterable[str], *, recursive: bool) -> list[Source]:
    """Return the inputs that a command line names; end the command if one is not there."""
    try:
        found = list(files(names, recursive=recursive))
    except UnreadableError as error:
        fail(str(error), code=UNREADABLE)
    directories = list(kustomizations)
    if "" in directories:
        fail("-k: found an empty name, expected a directory", code=UNREADABLE)
    return [*found, *(Source(name, is_kustomization=True) for name in directories)]


def read_all(
    sources: list[Source], report: Report, *, first: Callable[[str, bytes], None] | None = None
) -> Iterator[tuple[Source, bytes]]:
    """Read inputs one by one; those that cannot be read are noted. A terminal sees how far.

    Args:
        sources: the inputs.
        report: what could not be read is noted there.
        first: is told name and content of every input before the first one is handed out.
    """
    kept: list[_Content | None] = [None] * len(sources)
    if first is not None:
        kept = [_read_first(source, first) for source in sources]
    is_long = len(sources) >= _WORTH_A_BAR and sys.stderr.isatty()
    with typer.progressbar(sources, file=sys.stderr, hidden=not is_long) as bar:
        for source, held in zip(bar, kept, strict=True):
            content = _read(source) if held is None else held
            report.files += 1
            if isinstance(content, bytes):
                yield source, content
            else:
                report.errors.append(str(content))


def _read_first(source: Source, first: Callable[[str, bytes], None]) -> _Content | None:
    """Read an input for `first`; return what cannot be read a second time, as a pipe cannot.

    What a directory holds is read twice instead, and never all in memory.
    """
    content = _read(source)
    if isinstance(content, bytes):
        first(source.name, content)
    return None if source.is_found else content


def _read(source: Source) -> _Content:
    try:
        return source.read()
    except UnreadableError as error:
        return error


def tell(report: Report, format_: ReportFormat | None, *, to_stdout: bool) -> None:
    """Print what was found: on standard error unless standard output holds nothing else."""
    for error in report.errors:
        typer.echo(f"hami-dra: {error}", err=True)
    if format_ is not None:
        typer.echo(rendered(report, format_), err=not to_stdout, nl=False)
        return
    for entry in report.entries:
        for line in entry.lines:
            typer.echo(line, err=True)


def end(report: Report, *, done: str, is_strict: bool = False) -> None:
    """End the command with the code that says how it went."""
    if report.errors:
        raise typer.Exit(UNREADABLE)
    rejected, changed = report.count(Result.REJECTED), report.count(Result.CHANGED)
    if rejected:
        fail(
            f"{rejected} of {changed + rejected} GPU workloads could not be {done};"
            " their documents were passed through unchanged",
            code=NOT_ALL,
        )
    if refused := report.count(Result.REFUSED):
        fail(f"the check refused {refused} of what was {done}", code=NOT_ALL)
    if is_strict and report.has_remarks:
        fail("--strict: there are notices", code=NOT_ALL)
