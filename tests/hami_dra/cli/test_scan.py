"""The scan of bytes never misses: whatever a document says, it is parsed if it may say a name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_dra.cli.scan import Scanner
from hami_dra.yaml_edit import SyntaxProblem, parse

NAMES = ("nvidia.com/gpu", "nvidia.com/gpumem")
SCANNER = Scanner(NAMES)

ESCAPES = {
    "as it is": lambda c: c,
    "hex": lambda c: f"\\x{ord(c):02x}",
    "four": lambda c: f"\\u{ord(c):04X}",
    "eight": lambda c: f"\\U{ord(c):08x}",
    "folded": lambda c: f"\\\n   {c}",
    "folded, CRLF": lambda c: f"\\\r\n\t {c}",
    "folded, NEL": lambda c: f"\\\x85  {c}",
    "folded, LS": lambda c: f"\\\u2028 {c}",
    "slash": lambda c: f"\\{c}" if c == "/" else c,
}


@given(
    st.lists(st.sampled_from(list(ESCAPES.values())), min_size=14, max_size=14),
    st.sampled_from(("", "\\\\\n", "a\\", "'\\'\\", "\\x", "\\u00", "C:\\\\x ", '"\\\\" \\"')),
)
def test_a_name_is_found_however_it_is_escaped(ways: list[Any], before: str) -> None:
    spelled = "".join(way(c) for way, c in zip(ways, "nvidia.com/gpu", strict=True))

    assert SCANNER.finds(f'{before}\n"{spelled}": 1\n'.encode())


ALPHABET = st.sampled_from(
    ("nvidia.com/gpu", "nvidia.", "com", "/gpu", "\\x6e", "\\u002f", "\\/", "\\", "\\\\", '"', "'",
     ": ", "\n", "\\\n", "  ", "{", "}", ", ", "&a ", "*a", "!!binary bnZpZGlhLmNvbS9ncHU=", "- ",
     "|\n", "? ", "#", "!<tag:yaml.org,2002:binary> ", "%TAG !e! tag:yaml.org,2002:\n--- ")
)  # fmt: skip


def keys(node: Any) -> set[str]:  # noqa: ANN401 - any JSON
    if isinstance(node, dict):
        return set(node).union(*map(keys, node.values()))
    return set().union(*map(keys, node)) if isinstance(node, list) else set()


@given(st.lists(ALPHABET, max_size=14))
def test_no_document_with_a_managed_key_is_passed_over(pieces: list[str]) -> None:
    """Whatever nonsense parses and has a name for a key was found by its bytes."""
    text = "".join(pieces)
    try:
        named = not keys(parse(text).value).isdisjoint(NAMES)
    except SyntaxProblem:
        named = False

    assert SCANNER.finds(text.encode()) or not named


@pytest.mark.parametrize(
    "text",
    [
        "kind: ConfigMap\n",
        "script: |\n  printf 'a\\nb\\t' \\\n    | sed 's/\\/x/'\n",
        '{"a": "\\u00e9\\/"}',
        "nvidia.com: gpu\n",
    ],
)
def test_other_documents_are_passed_over(text: str) -> None:
    assert not SCANNER.finds(text.encode())
