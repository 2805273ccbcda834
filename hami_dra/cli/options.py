"""Options that several commands share; each is described once."""

from pathlib import Path
from typing import Annotated

import typer

Manifests = Annotated[
    list[str],
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE",
        help="Manifest to read, YAML or JSON; - reads standard input. May be repeated.",
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
