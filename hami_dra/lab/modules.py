"""Choose the Go module file that describes a version of Kubernetes.

`tests/cluster/go.mod` is the default version; `go-1.36.mod` with `go-1.36.sum` beside it is
another one, used as `go build -modfile`. What a version is stands in the file alone.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_dra.lab.failure import LabError

DEFAULT = "1.37"

SOURCE_VARIABLE = "HAMI_DRA_CLUSTER_SOURCE"

_REQUIREMENT = re.compile(r"^(?:require)?\s*k8s\.io/kubernetes v(\d+\.\d+\.\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Module:
    """A version of Kubernetes that can be built.

    Attributes:
        version: such as `1.37.2`.
        file: its module file; the checksums stand in the `.sum` beside it.
    """

    version: str
    file: Path

    @property
    def checksums(self) -> Path:
        """The file with the checksums of everything the module needs."""
        return self.file.with_suffix(".sum")


def source_directory() -> Path:
    """Find tests/cluster: where the environment says, or else in the checkout around this file."""
    given = os.environ.get(SOURCE_VARIABLE)
    source = Path(given).resolve() if given else Path(__file__).parents[2] / "tests" / "cluster"
    if not (source / "main.go").is_file():
        raise LabError(
            f"{source}: found no main.go, expected the source of the control plane; run from a"
            f" checkout, set {SOURCE_VARIABLE} to its tests/cluster, or set KUBEBUILDER_ASSETS"
            " to a folder with prebuilt binaries"
        )
    return source


def choose(source: Path, version: str) -> Module:
    """Find the module of a version, given as `1.37` or `1.37.2`."""
    modules = available(source)
    for module in modules:
        if version in (module.version, minor(module.version)):
            return module
    raise LabError(
        f"Kubernetes {version}: found {', '.join(module.version for module in modules) or 'none'}"
        f" in {source}, expected one of these; add go-{minor(version)}.mod and .sum for another"
    )


def available(source: Path) -> Sequence[Module]:
    """List the versions whose module files exist, the default first."""
    files = [source / "go.mod", *sorted(source.glob("go-*.mod"))]
    return [Module(_required_version(file), file) for file in files]


def minor(version: str) -> str:
    """Shorten `1.37.2` to `1.37`."""
    return ".".join(version.split(".")[:2])


def _required_version(file: Path) -> str:
    found = _REQUIREMENT.search(file.read_text())
    if not found:
        raise LabError(
            f"{file}: found no requirement of k8s.io/kubernetes, expected a line such as"
            " `k8s.io/kubernetes v1.37.2`; restore the file"
        )
    return found[1]
