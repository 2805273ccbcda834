"""The table of what users of other interposers reported: each row names tests that there are."""

import ast
import re
from pathlib import Path
from typing import Final

from tests.native.conftest import NATIVE

_PAGE: Final = (NATIVE.parent / ".github" / "NATIVE.md").read_text()
_TABLE: Final = _PAGE.partition("reported\n")[2]
_ROWS: Final = [
    line.strip("|").split("|") for line in _TABLE.splitlines() if re.match(r"\| \d", line)
]
_NAME: Final = re.compile(r"`(test_\w+)`")


def _tests() -> set[str]:
    names = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        tree = ast.parse(path.read_text())
        names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return names


def test_every_report_is_in_one_row() -> None:
    numbers = [
        int(number)
        for reports, *_ in _ROWS
        for number in re.findall(r"\d+", reports.partition(":")[0])
    ]

    assert sorted(numbers) == list(range(1, 55))


def test_every_row_names_tests_that_there_are_or_says_why_not() -> None:
    named = [name for *_, tests in _ROWS for name in _NAME.findall(tests)]

    assert sorted(set(named) - _tests()) == []
    assert [row[0] for row in _ROWS if not _NAME.search(row[-1]) and not row[-1].strip()] == []
