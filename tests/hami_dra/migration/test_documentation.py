"""What the documentation promises about notices."""

import re
from pathlib import Path

from hami_dra.migration import Code

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"


def test_every_notice_is_explained_in_the_readme() -> None:
    explained = re.findall(r"^\| `([A-Z]\w+)` \|", README.read_text(), re.MULTILINE)

    assert explained == sorted(Code)


def test_every_test_that_the_index_names_is_there() -> None:
    index = (ROOT / ".github" / "VECTORS.md").read_text()

    for named in re.findall(r"`([a-z][\w./:-]+)`", index):
        path, _, test = named.partition("::")
        if path.startswith("tests/"):
            assert test in (ROOT / path).read_text() if path.endswith(".py") else True, named
        elif "-" in path:
            assert (ROOT / "tests" / "cases" / path / "pod.yaml").exists(), named


def test_the_index_names_every_vector_report_and_gap() -> None:
    index = (ROOT / ".github" / "VECTORS.md").read_text()

    for kind, width, last in (("V", 2, 66), ("S", 1, 15), ("G", 1, 46)):
        found = re.findall(rf"^\| {kind}(\d+) \|", index, re.MULTILINE)
        assert found == [f"{number:0{width}}" for number in range(1, last + 1)]


def test_every_case_folder_with_a_number_is_in_the_index() -> None:
    index = (ROOT / ".github" / "VECTORS.md").read_text()

    numbered = {p.name for p in (ROOT / "tests" / "cases").iterdir() if p.name[1:3].isdigit()}
    assert {name for name in numbered if f"`{name}`" not in index} == set()
