"""What the documentation promises about notices."""

import re
from pathlib import Path

from hami_dra.migration import Code

README = Path(__file__).parents[3] / "README.md"


def test_every_notice_is_explained_in_the_readme() -> None:
    explained = re.findall(r"^\| `([A-Z]\w+)` \|", README.read_text(), re.MULTILINE)

    assert explained == sorted(Code)
