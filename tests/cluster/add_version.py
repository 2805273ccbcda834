"""Write the module files of another version of Kubernetes: go-1.36.mod and go-1.36.sum.

`python tests/cluster/add_version.py 1.36.3`. What the version needs (its staging modules, its Go
language version) stands in Kubernetes' own go.mod; `go mod tidy` resolves the rest from there.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hami_dra.lab import modules, toolchain

_HERE = Path(__file__).parent
_ENVIRONMENT = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def main() -> None:
    """Write the files for the version that the command line names."""
    version = sys.argv[1].removeprefix("v")
    minor = modules.minor(version)
    name = "go.mod" if minor == modules.DEFAULT else f"go-{minor}.mod"
    (_HERE / name).write_text(module_file(version, upstream_module_file(version)))
    (_HERE / name).with_suffix(".sum").unlink(missing_ok=True)
    go("mod", "tidy", "-modfile", name, folder=_HERE)


def upstream_module_file(version: str) -> str:
    """Return the go.mod that Kubernetes was released with."""
    with tempfile.TemporaryDirectory() as folder:
        said = go("mod", "download", "-json", f"k8s.io/kubernetes@v{version}", folder=Path(folder))
        downloaded: dict[str, str] = json.loads(said)
        return Path(downloaded["GoMod"]).read_text()


def module_file(version: str, upstream: str) -> str:
    """Return the least that `go mod tidy` can complete."""
    _, rest = version.split(".", 1)
    [language] = re.findall(r"^go (\S+)$", upstream, re.MULTILINE)
    staged = re.findall(r"=> \./staging/src/(\S+)$", upstream, re.MULTILINE)
    replaced = "".join(f"\t{name} => {name} v0.{rest}\n" for name in staged)
    return (
        f"module hami-dra/cluster\n\ngo {language}\n\n"
        f"require k8s.io/kubernetes v{version}\n\nreplace (\n{replaced})\n"
    )


def go(*arguments: str, folder: Path) -> str:
    """Run the Go command in a folder and return what it said."""
    command = [str(toolchain.find("go")), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=_ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
