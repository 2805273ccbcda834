"""`hami-dra convert`: manifests as the webhook would make their pods."""

import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from hami_dra.cli.conversion import Converted, Converter, Located
from hami_dra.cli.exits import USAGE, fail
from hami_dra.cli.kustomize import is_patch
from hami_dra.cli.options import (
    Context,
    InPlaceOption,
    Inventory,
    Kubeconfig,
    KubeVersion,
    Kustomize,
    Manifests,
    OutputDirectory,
    PolicyFile,
    Recursive,
    ReportOption,
)
from hami_dra.cli.output import Output, chosen
from hami_dra.cli.report import Entry, Report
from hami_dra.cli.run import end, inputs, read_all, tell
from hami_dra.cli.sources import Source, UnreadableError
from hami_dra.cli.target import Target, find_target

EPILOG: Final = (
    "Examples: hami-dra convert -f deployment.yaml | kubectl apply -f -;"
    " helm template chart | hami-dra convert -f - --context production;"
    " hami-dra convert -R -f manifests --in-place"
)


class Validate(StrEnum):
    """Who checks the result."""

    NONE = "none"
    SCHEMA = "schema"
    SERVER = "server"


class Format(StrEnum):
    """What is printed."""

    YAML = "yaml"
    JSON = "json"


def convert_command(
    files: Manifests = None,
    kustomize: Kustomize = None,
    *,
    recursive: Recursive = False,
    output: Annotated[
        Format | None,
        typer.Option(
            "--output",
            "-o",
            help="Print everything as YAML or as one JSON List. Default: each document as it was"
            " written.",
        ),
    ] = None,
    in_place: InPlaceOption = False,
    output_dir: OutputDirectory = None,
    policy: PolicyFile = None,
    inventory: Inventory = "",
    context: Context = "",
    kubeconfig: Kubeconfig = None,
    kube_version: KubeVersion = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 3 when there is any notice.")
    ] = False,
    report: ReportOption = None,
    validate: Annotated[
        Validate,
        typer.Option(
            help="Check what changed: schema by the fields of Kubernetes' API, offline; server by"
            " a dry run there, which needs --context or --kubeconfig."
        ),
    ] = Validate.NONE,
) -> None:
    """Print manifests as the webhook would make their pods, with the templates they need.

    Only lines that have to change do; a document without GPU sharing resources is not touched at
    all. Each template stands once, before the first document that needs it. Manifests go to
    standard output, notices to standard error. Nothing is written to any cluster.
    """
    sources = inputs(files or [], kustomize or [], recursive=recursive)
    out = _output(sources, output, output_dir, in_place=in_place)
    if validate is Validate.SERVER and not (context or kubeconfig):
        fail("--validate=server: expected --context or --kubeconfig", code=USAGE)
    target = find_target(
        policy,
        kube_version=kube_version,
        inventory=inventory,
        context=context,
        kubeconfig=kubeconfig,
    )
    found = Report()
    documents = _convert_all(sources, target, out, found, keep=validate is not Validate.NONE)
    out.finish()
    sys.stdout.flush()
    found.entries += _refused(documents, validate, context, kubeconfig)
    tell(found, report, to_stdout=in_place or output_dir is not None)
    end(found, done="converted", is_strict=strict)


def _output(
    sources: list[Source], output: Format | None, output_dir: Path | None, *, in_place: bool
) -> Output:
    if not sources:
        fail("found no input, expected -f FILE, -f - or -k DIR", code=USAGE)
    if (in_place, output is not None, output_dir is not None).count(True) > 1:
        fail("expected one of --in-place, --output-dir and --output", code=USAGE)
    return _formatted(output) if output else chosen(sources, output_dir, in_place=in_place)


def _formatted(output: Format) -> Output:
    from hami_dra.cli.formatted import AsJson, AsYaml  # noqa: PLC0415 - seldom

    return AsJson() if output is Format.JSON else AsYaml()


def _convert_all(
    sources: list[Source], target: Target, out: Output, report: Report, *, keep: bool
) -> list[Located]:
    """Convert all inputs; return what is new or changed in them, where that is wanted."""
    converter = Converter(target.policy, target.cards)
    kept: list[Located] = []
    for source, data in read_all(sources, report, first=converter.note_templates):
        converted = Converted()
        try:
            converted = converter.convert(source.name, data, is_patch=partial(is_patch, source))
            text = converted.text
            out.put(source, data if text is None else text.encode(), changed=text is not None)
        except UnreadableError as error:
            converter.take_back(converted)
            report.errors.append(str(error))
            continue
        report.entries += converted.entries
        if keep:
            kept += converted.documents
    return kept


def _refused(
    documents: list[Located], validate: Validate, context: str, kubeconfig: Path | None
) -> list[Entry]:
    """Return which of the documents that are new or changed do not pass."""
    if not documents:
        return []
    if validate is Validate.SCHEMA:
        from hami_dra.cli.schema_check import check  # noqa: PLC0415 - long to import, as below

        return check(documents)
    from hami_dra.cli.validation import validate as ask  # noqa: PLC0415

    return ask(documents, context or None, kubeconfig)
