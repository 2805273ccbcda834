"""`hami-dra diff`: what a conversion changes."""

import difflib
import os
import posixpath
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import typer

from hami_dra.cli.conversion import Converter
from hami_dra.cli.exits import USAGE, fail, whole_output
from hami_dra.cli.kustomize import is_patch
from hami_dra.cli.options import (
    Context,
    Inventory,
    Kubeconfig,
    KubeVersion,
    Kustomize,
    Manifests,
    PolicyFile,
    Recursive,
)
from hami_dra.cli.report import Report, Result
from hami_dra.cli.run import inputs, read_all, tell
from hami_dra.cli.sources import Source, UnreadableError
from hami_dra.cli.target import Target, find_target

EPILOG: Final = (
    "Example: hami-dra diff -R -f manifests. Exit codes, as with kubectl diff: 0 nothing changes,"
    " 1 something changes, more than 1 trouble: 2 input unreadable or usage, 3 some documents could"
    " not be dealt with. KUBECTL_EXTERNAL_DIFF names another program."
)

_DIFFERENT: Final = 1
_UNREADABLE: Final = 2
_NOT_ALL: Final = 3
_EXTERNAL: Final = "KUBECTL_EXTERNAL_DIFF"
_COLOURS: Final = {"+": "\x1b[32m", "-": "\x1b[31m", "@": "\x1b[36m"}
_PLAIN: Final = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class _Change:
    """An input that changes."""

    source: Source
    before: str
    after: str


def diff_command(
    files: Manifests = None,
    kustomize: Kustomize = None,
    *,
    recursive: Recursive = False,
    policy: PolicyFile = None,
    inventory: Inventory = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    kube_version: KubeVersion = "",
) -> None:
    """Show what hami-dra convert changes, as a unified diff; notices go to standard error."""
    sources = inputs(files or [], kustomize or [], recursive=recursive)
    if not sources:
        fail("found no input, expected -f FILE, -f - or -k DIR", code=USAGE)
    target = find_target(
        policy,
        kube_version=kube_version,
        inventory=inventory,
        context=context,
        kubeconfig=kubeconfig,
    )
    report = Report()
    changes = list(_changes(sources, target, report))
    with whole_output(_UNREADABLE):  # 1 would say that something changes, and no more
        trouble = _show(changes)
    tell(report, None, to_stdout=False)
    if report.errors:
        raise typer.Exit(_UNREADABLE)
    if report.count(Result.REJECTED):
        raise typer.Exit(_NOT_ALL)
    raise typer.Exit(trouble or (_DIFFERENT if changes else 0))


def _changes(sources: list[Source], target: Target, report: Report) -> Iterator[_Change]:
    converter = Converter(target.policy, target.cards)
    for source, data in read_all(sources, report, first=converter.note_templates):
        try:
            converted = converter.convert(source.name, data, is_patch=partial(is_patch, source))
        except UnreadableError as error:
            report.errors.append(str(error))
            continue
        report.entries += converted.entries
        if converted.text is not None:
            yield _Change(source, data.decode(), converted.text)


def _show(changes: list[_Change]) -> int:
    """Show changes; return the exit code of another program where that went wrong."""
    if not changes:
        return 0
    if command := _command(os.environ.get(_EXTERNAL, "")):
        return _external(command, changes)
    is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for change in changes:
        for line in unified(change.source.name, change.before, change.after):
            colour = _COLOURS.get(line[:1], "") if is_coloured else ""
            sys.stdout.write(f"{colour}{line}{_PLAIN}\n" if colour else f"{line}\n")
    return 0


def unified(name: str, before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff, without their line feeds: patch and git apply take it."""
    name = posixpath.normpath(name).lstrip("/")
    # Where a name with a blank in it ends is told by a tab, as git does.
    name += "\t" if " " in name else ""
    shown = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}")
    for line in shown:
        yield line.removesuffix("\n")
        if not line.endswith("\n") and line[0] in " +-":
            yield "\\ No newline at end of file"


def _lines(text: str) -> list[str]:
    """Return a text's lines as patch counts them: a line feed ends one, and nothing else does."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _command(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        fail(f"{_EXTERNAL}: found {text!r}, expected a command: {error}", code=_UNREADABLE)


def _external(command: list[str], changes: list[_Change]) -> int:
    """Hand two directories to the program, as kubectl does."""
    with tempfile.TemporaryDirectory(prefix="hami-dra-diff-") as directory:
        for side in ("LEGACY", "CONVERTED"):
            for change in changes:
                name = posixpath.normpath("/" + change.source.name).lstrip("/")
                path = Path(directory, side, name or "manifests.yaml")
                path.parent.mkdir(parents=True, exist_ok=True)
                text = change.before if side == "LEGACY" else change.after
                path.write_bytes(text.encode())
        try:
            ran = subprocess.run([*command, "LEGACY", "CONVERTED"], cwd=directory, check=False)
        except OSError as error:
            fail(f"{_EXTERNAL}: {command[0]}: {error.strerror}", code=_UNREADABLE)
    return ran.returncode if ran.returncode > _DIFFERENT else 0
