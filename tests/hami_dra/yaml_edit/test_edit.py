"""How an edit looks: removed lines with their comments, added ones in the file's own layout."""

from collections.abc import Callable
from typing import Any

import pytest

from hami_dra.yaml_edit import EditError, edited, parse


def edit(text: str, change: Callable[[Any], object]) -> str:
    document = parse(text)
    after = parse(text).value
    change(after)
    return edited(document, after)


def without(*path: Any) -> Callable[[Any], object]:  # noqa: ANN401 - keys and positions
    def change(value: Any) -> None:  # noqa: ANN401 - any JSON
        for step in path[:-1]:
            value = value[step]
        del value[path[-1]]

    return change


def with_(key: str, member: object) -> Callable[[Any], object]:
    return lambda value: value.update({key: member})


COMMENTS = """\
# of the file
a:
  # of the first
  x: 1 # behind x
  # of w,
  # in two lines
  w: 2 # behind w

  # apart from z

  z: 3
    # further in
# of b
b: 1
"""


def test_comments_go_with_the_member_that_they_belong_to() -> None:
    gone = "  # of w,\n  # in two lines\n  w: 2 # behind w\n"

    assert edit(COMMENTS, without("a", "w")) == COMMENTS.replace(gone, "")


def test_comments_apart_from_a_member_stay() -> None:
    gone = "  z: 3\n    # further in\n"

    assert edit(COMMENTS, without("a", "z")) == COMMENTS.replace(gone, "")


def test_a_member_that_comes_stands_behind_its_last_sibling() -> None:
    expected = COMMENTS.replace("further in\n", "further in\n  new: v\n")

    assert edit(COMMENTS, lambda value: value["a"].update(new="v")) == expected


def test_an_object_that_becomes_empty_says_so_on_its_line() -> None:
    assert edit("a: # why\n  x: 1\nb: 2\n", without("a", "x")) == "a: {} # why\nb: 2\n"
    assert edit("a:\n- x: 1\n- b\n", without("a", 0, "x")) == "a:\n- {}\n- b\n"
    assert edit("a:\n  - 1\n", without("a", 0)) == "a: []\n"


def test_an_empty_object_that_fills_becomes_a_block() -> None:
    for empty in ("a: {} # c\n", "a: # c\n", "a: null # c\n"):
        changed = edit(empty, with_("a", {"k": [1]}))
        assert changed.split("\n", 1)[1] == "  k:\n  - 1\n"
        assert "# c" in changed.split("\n")[0]


LAYOUTS = [
    ("a:\n    b:\n        - x\n", "    c:\n        - 1\n        - k: v\n          l: w\n"),
    ("a:\n  b:\n  -   x\n", "  c:\n  -   1\n  -   k: v\n      l: w\n"),
    ("a:\r\n  b:\r\n  - x\r\n", "  c:\r\n  - 1\r\n  - k: v\r\n    l: w\r\n"),
]


@pytest.mark.parametrize(("text", "added"), LAYOUTS)
def test_what_comes_has_the_layout_of_the_file(text: str, added: str) -> None:
    member = [1, {"k": "v", "l": "w"}]

    assert edit(text, lambda value: value["a"].update(c=member)) == text + added


@pytest.mark.parametrize("text", ["a:\n  x: 1\n  w: 2", "a:\n  w: 2\n  x: 1"])
def test_a_file_that_ends_without_a_line_break_still_does(text: str) -> None:
    assert edit(text, without("a", "x")) == "a:\n  w: 2"
    assert edit(text, with_("b", 1)) == f"{text}\nb: 1"


def test_the_first_member_behind_a_dash_goes_and_the_next_one_moves_up() -> None:
    assert edit("- - 1\n  - 2\n", without(0, 0)) == "- - 2\n"
    assert edit("- x: 1 # c\n  w: 2\n", without(0, "x")) == "- w: 2\n"
    commented = "- x: 1\n  # of w\n  w: 2\n"
    assert parse(edit(commented, without(0, "x"))).value == [{"w": 2}]
    assert "# of w" in edit(commented, without(0, "x"))


FLOWS = [
    ("{a: 1, b: 2, c: 3}\n", "{b: 2, c: 3}\n", "{a: 1, c: 3}\n", "{a: 1, b: 2}\n"),
    ("{ a: 1,b: 2,c: 3 }\n", "{ b: 2,c: 3 }\n", "{ a: 1,c: 3 }\n", "{ a: 1,b: 2 }\n"),
    ("{a: 1, b: 2, c: 3,}\n", "{b: 2, c: 3,}\n", "{a: 1, c: 3,}\n", "{a: 1, b: 2,}\n"),
    (
        "{\n  a: 1, # a\n  # of b\n  b: 2, # b\n  c: 3 # c\n}\n",
        "{\n  # of b\n  b: 2, # b\n  c: 3 # c\n}\n",
        "{\n  a: 1, # a\n  c: 3 # c\n}\n",
        "{\n  a: 1, # a\n  # of b\n  b: 2 # b\n}\n",
    ),
    (
        '{\n\t"a": 1,\n\t"b": 2,\n\t"c": 3\n}',
        '{\n\t"b": 2,\n\t"c": 3\n}',
        '{\n\t"a": 1,\n\t"c": 3\n}',
        '{\n\t"a": 1,\n\t"b": 2\n}',
    ),
]


@pytest.mark.parametrize(("text", "a", "b", "c"), FLOWS)
def test_members_go_from_between_braces(text: str, a: str, b: str, c: str) -> None:
    assert [edit(text, without(key)) for key in "abc"] == [a, b, c]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a: 1}\n", "{a: 1, new: [x]}\n"),
        ("{ a: 1 }\n", "{ a: 1, new: [x] }\n"),
        ("{a: 1,}\n", "{a: 1, new: [x],}\n"),
        ("{} # c\n", "{new: [x]} # c\n"),
        ('{"a":1}', '{"a":1,"new":["x"]}'),
        ('{"a": 1,"b": 2}', '{"a": 1,"b": 2,"new": ["x"]}'),
        ('{\n  "a": 1\n}\n', '{\n  "a": 1,\n  "new": [\n    "x"\n  ]\n}\n'),
        ("{\n  a: 1 # a\n}\n", "{\n  a: 1, # a\n  new: [\n    x\n  ]\n}\n"),
        ("{\n  a: 1, # a\n}\n", "{\n  a: 1, # a\n  new: [\n    x\n  ],\n}\n"),
    ],
)
def test_members_come_between_braces_in_their_style(text: str, expected: str) -> None:
    assert edit(text, with_("new", ["x"])) == expected


ANCHORS = "a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, m: 3}\nd: &u\n- 1\ne: *u\n"


def test_an_alias_stays_where_all_of_its_places_want_the_same() -> None:
    def everywhere(value: Any) -> None:  # noqa: ANN401 - any JSON
        for place in "abc":
            del value[place]["k"]

    assert edit(ANCHORS, everywhere) == ANCHORS.replace("k: 1, ", "")


def test_an_alias_is_written_out_where_one_place_wants_something_else() -> None:
    assert edit(ANCHORS, without("b", "k")) == ANCHORS.replace("b: *x", "b:\n  l: 2")
    assert edit(ANCHORS, without("c", "k")) == ANCHORS.replace("<<: *x, m: 3", "m: 3, l: 2")
    changed = edit(ANCHORS, without("a", "k"))
    assert changed.startswith("a: &x {l: 2}\nb:\n  k: 1\n  l: 2\n")


def test_a_merge_that_brings_less_is_completed() -> None:
    changed = edit(ANCHORS, without("a", "k"))

    assert "c: {<<: *x, m: 3, k: 1}\n" in changed


def test_an_alias_is_written_out_where_its_anchor_goes() -> None:
    assert edit(ANCHORS, without("d")).endswith("e:\n- 1\n")


QUOTED = [
    "1",
    "yes",
    "a: b",
    "x #y",
    "it's",
    'say "hi"',
    "",
    " led",
    "two\nlines",
    "\x07",
    "☃\u2028",
]


@pytest.mark.parametrize("text", QUOTED)
def test_text_is_quoted_where_a_reader_would_take_it_for_something_else(text: str) -> None:
    for layout in ("a: 1\n", "{a: 1}\n", '{"a": 1}'):
        assert parse(edit(layout, with_("new", text))).value["new"] == text


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("a: 1\n", lambda value: value.clear()),
        ("a: [k: 1]\n", without("a", 0, "k")),
        ("a: |\n  x", with_("b", 1)),
    ],
)
def test_what_cannot_be_changed_in_place_changes_nothing(
    text: str, change: Callable[[Any], object]
) -> None:
    """Rare layouts are refused rather than rewritten: the caller passes them through."""
    with pytest.raises(EditError):
        edit(text, change)


def test_an_empty_document_has_nothing_to_change() -> None:
    with pytest.raises(EditError, match="empty"):
        edited(parse("# nothing\n"), {"a": 1})
