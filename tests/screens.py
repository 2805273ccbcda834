"""The screens of the documentation: a block after `<!-- screen: COMMAND -->` is its output.

`make screens` writes them; a test tells when they are no longer current.
"""

import re
import shlex
from contextlib import chdir
from pathlib import Path
from typing import Final

from typer.testing import CliRunner

from hami_dra.cli.app import app

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
    with chdir(ROOT):
        result = CliRunner().invoke(
            app, shlex.split(arguments), prog_name="hami-dra", env={"COLUMNS": "80"}
        )
    return "".join(f"{line.rstrip()}\n" for line in result.output.splitlines())


if __name__ == "__main__":
    for name in PAGES:
        page = ROOT / name
        page.write_text(shown(page.read_text()))
