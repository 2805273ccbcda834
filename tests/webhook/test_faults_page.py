"""The page of faults promises nothing that no test shows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / ".github" / "FAULTS.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "shown by" not in line]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE)


def names_in(file: str) -> set[str]:
    """Return the names of a module's tests."""
    tree = ast.parse((ROOT / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


def test_every_row_names_a_test_that_there_is() -> None:
    assert len(ROWS) > 20
    assert [row for row in ROWS if "::test_" not in row] == []
    assert [f"{file}::{name}" for file, name in NAMED if name not in names_in(file)] == []


def test_every_test_of_a_fault_is_named() -> None:
    files = sorted((ROOT / "tests" / "e2e").glob("test_faults_*.py"))
    there = {name for file in files for name in names_in(str(file)) if name.startswith("test_")}

    assert [name for name in sorted(there) if name not in PAGE] == []
