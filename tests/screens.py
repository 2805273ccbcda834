"""The screens of the documentation: a block after `<!-- screen: COMMAND -->` is its output.

`make screens` writes them; a test tells when they are no longer current.
"""

import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Final

from typer.testing import CliRunner

from hami_dra.cli.app import app
from tests.manifest_api import SCENE, ManifestApi, documents, serving

PAGES: Final = ("README.md", ".github/CLI.md")
"""Pages with screens, from the repository's root."""

ROOT: Final = Path(__file__).parents[1]
_SCREEN: Final = re.compile(
    r"(<!-- screen: hami-dra (?P<arguments>[^\n]*) -->\n+```(?:text|diff|console)\n).*?(^```$)",
    re.MULTILINE | re.DOTALL,
)


def shown(text: str) -> str:
    """Return a page with every screen as the CLI prints it now."""
    return _SCREEN.sub(lambda m: m[1] + _screen(m["arguments"]) + m[3], text)


def _screen(arguments: str) -> str:
    with chdir(ROOT), _cluster() as kubeconfig:
        environment = {"COLUMNS": "80", "KUBECONFIG": str(kubeconfig)}
        result = CliRunner().invoke(
            app, shlex.split(arguments), prog_name="hami-dra", env=environment
        )
    return "".join(f"{line.rstrip()}\n" for line in result.output.splitlines())


@contextmanager
def _cluster() -> Iterator[Path]:
    """Serve what the screens of commands about a cluster show; yield a kubeconfig."""
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(ManifestApi(documents(SCENE)), Path(directory)) as kubeconfig,
    ):
        yield kubeconfig


if __name__ == "__main__":
    for name in PAGES:
        page = ROOT / name
        page.write_text(shown(page.read_text()))
