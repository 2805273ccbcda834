"""`hami-dra revert`: converted manifests as they were."""

from pathlib import Path
from typing import Final

from hami_dra.cli.exits import USAGE, fail
from hami_dra.cli.options import (
    InPlaceOption,
    Manifests,
    OutputDirectory,
    Recursive,
    ReportOption,
)
from hami_dra.cli.output import Output, chosen
from hami_dra.cli.report import Report
from hami_dra.cli.reversion import Reverted, Reverter
from hami_dra.cli.run import end, inputs, read_all, tell
from hami_dra.cli.sources import Source, UnreadableError

EPILOG: Final = (
    "Example: hami-dra convert -f deployment.yaml | hami-dra revert -f - | diff deployment.yaml -"
)


def revert_command(
    files: Manifests = None,
    *,
    recursive: Recursive = False,
    in_place: InPlaceOption = False,
    output_dir: OutputDirectory = None,
    report: ReportOption = None,
) -> None:
    """Print converted manifests as they were before, without the templates they needed.

    It reads the annotation that a conversion leaves on each pod. Documents without it are not
    touched at all, apart from templates of ours that nothing refers to any more. What the
    annotation does not hold does not come back: comments on the lines that were removed, and the
    place of a resource among others that stayed.
    """
    sources = inputs(files or [], (), recursive=recursive)
    out = _output(sources, output_dir, in_place=in_place)
    found = Report()
    _revert_all(sources, out, found)
    out.finish()
    tell(found, report, to_stdout=in_place or output_dir is not None)
    end(found, done="reverted")


def _output(sources: list[Source], output_dir: Path | None, *, in_place: bool) -> Output:
    if not sources:
        fail("found no input, expected -f FILE or -f -", code=USAGE)
    if in_place and output_dir:
        fail("expected one of --in-place and --output-dir", code=USAGE)
    return chosen(sources, output_dir, in_place=in_place)


def _revert_all(sources: list[Source], out: Output, report: Report) -> None:
    """Read all inputs before the first is written: they say which templates are still needed."""
    reverter = Reverter()
    read: list[tuple[Source, bytes, Reverted]] = []
    for source, data in read_all(sources, report):
        try:
            reverted = reverter.revert(source.name, data)
        except UnreadableError as error:
            report.errors.append(str(error))
            continue
        report.entries += reverted.entries
        read.append((source, data, reverted))
    for source, data, reverted in read:
        text = reverter.text(reverted)
        try:
            out.put(source, data if text is None else text.encode(), changed=text is not None)
        except UnreadableError as error:
            report.errors.append(str(error))
