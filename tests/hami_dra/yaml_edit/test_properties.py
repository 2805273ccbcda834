"""Whatever a document looks like, an edit changes what it says and leaves the rest of its text."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hami_dra.yaml_edit import edited, parse
from hami_dra.yaml_edit.same import same
from tests.hami_dra.yaml_edit.layouts import changed, texts


@given(texts())
def test_a_document_that_says_what_it_should_is_not_touched(drawn: tuple[str, Any]) -> None:
    document = parse(drawn[0])

    assert edited(document, parse(drawn[0]).value) is document.text


@given(st.data())
def test_an_edited_document_says_what_it_should(data: st.DataObject) -> None:
    """Every document can be edited; none ends in an error or in a text that says something else."""
    text, _ = data.draw(texts())
    document = parse(text)
    after = data.draw(changed(document.value))
    if not after:
        return

    result = edited(document, after)

    assert same(parse(result).value, after)
    assert edited(parse(result), after) == result


@given(st.data())
def test_lines_of_values_that_stay_are_the_same(data: st.DataObject) -> None:
    """A member is removed, and another one comes: lines elsewhere keep every character."""
    text, marks = data.draw(texts())
    document = parse(text)
    gone = data.draw(st.sampled_from(sorted(document.value)))
    after = {key: value for key, value in document.value.items() if key != gone} | {
        "new": [{"a": 1}]
    }

    result = edited(document, after)

    for path, mark in marks.items():
        (line,) = [each for each in text.splitlines(keepends=True) if each.rstrip().endswith(mark)]
        if "*" in line:
            continue  # an alias is written out where its anchor goes
        is_kept = line.rstrip("\r\n") in result.splitlines()
        assert is_kept == (path[0] != gone), (path, line)
