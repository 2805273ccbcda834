"""Text means to us what it means to Kubernetes: the real kubectl is the referee."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings

from hami_dra.yaml_edit import SyntaxProblem, parse
from hami_dra.yaml_edit.same import same
from tests.hami_dra.yaml_edit.layouts import texts

KUBECTL = shutil.which("kubectl")


def as_kubectl_reads(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return what kubectl makes of an object's field, without a cluster."""
    indented = "".join(
        f"  {line}" if line.strip() else line for line in text.splitlines(keepends=True)
    )
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n"
    assert KUBECTL, "kubectl comes with the requirements of the tests"
    ran = subprocess.run(
        [KUBECTL, "annotate", "--local", "-f", "-", "-o", "json", "a=b"],
        input=(head + indented).encode(),
        capture_output=True,
        check=True,
    )
    return json.loads(ran.stdout)["spec"]


SCALARS = (
    "on y Y n N yes off NULL Null nULL TRUE tRUE ~ = v1 a-b GPU-1 \"1\" '1'",
    "0777 0o17 0x1F 0X1f +0x1F -0777 -0b11 0b11 012_3 08 09.5 00 0b 0o8 0_7 0b12 0xg 0x 0777.0",
    "1e3 1E5 12e03 1.5e+3 1e-3 1e400 1e21 1e20 1e 1e+ .e1 .5 1. 0. +.5 -.5 +1 -0 +0 1.0 .inf2 . ..",
    "1_000 _1 1__0 1_0.5 1._5 ._5 8000 16Gi 500m 1k 1:30 2024-01-01 2001-12-14t21:59:43.10-05:00",
    "9223372036854775808 -9223372036854775808 18446744073709551616 123456789012345678901234",
    '!!str§5 !!int§"5" !!float§3 !!binary§aGk= !§5 !!bool§"on"',
)
"""Spellings by the line, a space within one as `§`."""


def test_every_spelling_of_a_scalar_means_what_kubectl_makes_of_it() -> None:
    spelled = [each.replace("§", " ") for line in SCALARS for each in line.split()]
    lines = [f"k{index}: {each}\n" for index, each in enumerate(spelled)]

    found = parse("".join(lines)).value

    expected = as_kubectl_reads("".join(lines))
    for index, each in enumerate(spelled):
        ours, theirs = found[f"k{index}"], expected[f"k{index}"]
        assert json.dumps(ours) == json.dumps(theirs) or float(ours) == float(theirs), each


DOCUMENTS = {
    "keys": "on: a\n1: b\n1.5: c\n~x: d\n'y': e\n",
    "merge after a key": "a: {x: 1, <<: {x: 2, y: 3}, z: 4}\n",
    "merge before a key": "a: {<<: {x: 2, y: 3}, x: 1}\n",
    "merge of a list": "a: {<<: [{x: 1}, {x: 2, y: 3}], z: 4}\n",
    "aliases": "a: &a {x: [1, 2]}\nb: *a\nc:\n  <<: *a\n  y: 1\n",
    "blocks": "a: |\n  x\n   y\n\nb: >-\n  x\n  y\nc: |+\n  z\n\n",
    "folded": "a: x\n  y\nb: 'x\n  y'\nc: \"x\\\n  y\"\n",
    "escapes": 'a: "\\x41\\u00e9\\t"\n',
    "empty": "a:\nb: {}\nc: []\nd: ''\n",
    "tabs": "a: 1\t# b\nc:\t2\n",
}


@pytest.mark.parametrize("text", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_documents_mean_what_kubectl_makes_of_them(text: str) -> None:
    assert same(parse(text).value, as_kubectl_reads(text))


@settings(max_examples=25)
@given(texts())
def test_drawn_documents_mean_what_kubectl_makes_of_them(drawn: tuple[str, Any]) -> None:
    text, _ = drawn
    if text.startswith("{") or "\r" in text:
        text = json.dumps(parse(text).value)

    assert same(parse(text).value, as_kubectl_reads(text))


REFUSED = {
    "a key twice": ("a: 1\nb: 2\na: 3\n", 3, 1, "found the key 'a' twice, first in line 1"),
    "a key twice in JSON": ('{"a": 1,\n "a": 2}', 2, 2, "twice"),
    "a list as a key": ("? [a]\n: 1\n", 1, 3, "found list as a key"),
    "no such anchor": ("a: *b\n", 1, 4, "found *b"),
    "an alias of itself": ("a: &a [*a]\n", 1, 8, "an alias of what is around it"),
    "no JSON number": ("a: .nan\n", 1, 4, "a number that JSON can hold"),
    "a wrong tag": ("a: !!int x\n", 1, 4, "expected !!int"),
    "merging text": ("a: {<<: x}\n", 1, 9, "expected a mapping to merge"),
    "not YAML": ("a: [1\nb: 2\n", 2, 2, "not YAML"),
    "tabs as indent": ("a:\n\tb: 1\n", 2, 1, "not YAML"),
    "too deep": ("[" * 400 + "]" * 400, 1, 202, "nested too deeply"),
    "too deep in JSON": ('{"a":' * 400 + "1" + "}" * 400, 1, 1, "nested too deeply"),
    "far too deep in JSON": ('{"a":' * 100_000 + "1" + "}" * 100_000, 1, 1, "nested too deeply"),
    "two documents": ("a: 1\n--- b\n", 2, 1, "a second document"),
}


@pytest.mark.parametrize(("text", "line", "column", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_document_is_refused_with_its_place(
    text: str, line: int, column: int, said: str
) -> None:
    with pytest.raises(SyntaxProblem) as refused:
        parse(text)

    assert (refused.value.line, refused.value.column) == (line, column)
    assert said in str(refused.value)


def test_a_document_built_to_exhaust_its_reader_is_refused() -> None:
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)]

    with pytest.raises(SyntaxProblem, match="aliases stand for too many values"):
        parse("".join(levels))
