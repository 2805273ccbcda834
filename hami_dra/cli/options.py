"""Options that several commands share; each is described once."""

from pathlib import Path
from typing import Annotated

import typer

from hami_dra.cli.report import ReportFormat


def _directory(name: str) -> Path:
    """Read a directory's name; a path would take an empty one for the current directory."""
    if not name:
        raise typer.BadParameter("found an empty name, expected a directory")
    return Path(name)


Manifests = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE|DIR|-",
        help="Manifests to read, YAML or JSON: a file, the files of a directory, or - for standard"
        " input. May be repeated.",
    ),
]

Recursive = Annotated[
    bool, typer.Option("--recursive", "-R", help="Read the directories below DIR as well.")
]

Kustomize = Annotated[
    list[str] | None,
    typer.Option(
        "--kustomize",
        "-k",
        metavar="DIR",
        help="Kustomization to build with kubectl kustomize. May be repeated.",
    ),
]

ReportOption = Annotated[
    ReportFormat | None,
    typer.Option(
        "--report",
        help="Print one report instead of a line for each notice; on standard output where no"
        " manifest is printed.",
    ),
]

PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        envvar="HAMI_DRA_POLICY",
        help="Policy file, which says what a migration means; see hami-dra policy show.",
    ),
]

InPlaceOption = Annotated[
    bool, typer.Option("--in-place", help="Replace the files that change, each as a whole.")
]

OutputDirectory = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        metavar="DIR",
        parser=_directory,
        help="Write all files below DIR, changed or not.",
    ),
]

KubeVersion = Annotated[
    str,
    typer.Option(
        metavar="MAJOR.MINOR",
        help="Version of the cluster; before 1.36, pods with several cards need another form.",
    ),
]

Inventory = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="The cluster's cards, for percentages of memory: what kubectl get resourceslices -o"
        " yaml prints, or cards: [{model: NVIDIA L4, memory: 23034Mi, count: 8}].",
    ),
]

Context = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Ask the cluster of this kubeconfig context for its cards and its version.",
    ),
]

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Ask the cluster of this kubeconfig for its cards and its version."
    ),
]
