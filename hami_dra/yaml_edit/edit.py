"""Edit: make a document say something else, and prove that it does."""

from typing import Any

from hami_dra.yaml_edit.anchors import Anchors
from hami_dra.yaml_edit.block import BlockEditor, Splice
from hami_dra.yaml_edit.flow import FlowEditor
from hami_dra.yaml_edit.node import Mapping, Node
from hami_dra.yaml_edit.parse import Document, parse
from hami_dra.yaml_edit.problem import EditError, SyntaxProblem
from hami_dra.yaml_edit.same import same
from hami_dra.yaml_edit.style import Lines, layout_of
from hami_dra.yaml_edit.value import Memory
from hami_dra.yaml_edit.write import FlowStyle


def edited(document: Document, after: Any) -> str:  # noqa: ANN401 - any JSON
    """Return a document's text, changed only where it has to be so that it says something else.

    Args:
        document: as it was parsed.
        after: what the text should say.

    Raises:
        EditError: if it cannot be changed in place, or would not read as it should.
    """
    if same(document.value, after):
        return document.text
    if document.root is None:
        raise EditError("an empty document cannot be changed in place")
    text = _rewritten(document, document.root, after)
    try:
        found = parse(text).value
    except SyntaxProblem as problem:
        raise EditError(f"the changed text does not read: {problem}") from problem
    if not same(found, after):
        raise EditError("the changed text would say something else than it should")
    return text


def _rewritten(document: Document, root: Node, after: Any) -> str:  # noqa: ANN401 - any JSON
    lines = Lines(document.text)
    reader = Memory(lines.text)
    anchors = Anchors(reader)
    if isinstance(root, Mapping) and root.flow:
        style = FlowStyle(as_json=document.is_json, line_break=lines.break_)
        text = FlowEditor(lines, anchors, reader).edited(root, after, style)
        return document.text[: root.start] + text + document.text[root.end :]
    editor = BlockEditor(lines, layout_of(root, lines), anchors, reader)
    editor.edit_root(root, after)
    text = _spliced(lines.text, editor.splices)
    return text.removesuffix(lines.break_) if lines.text != document.text else text


def _spliced(text: str, splices: list[Splice]) -> str:
    parts, at = list[str](), 0
    # Sorting keeps the order of insertions in one place: inner blocks before outer ones.
    for splice in sorted(splices, key=lambda each: (each.start, each.end)):
        if splice.start < at:
            raise EditError("two changes touch the same text")
        parts += [text[at : splice.start], splice.text]
        at = splice.end
    return "".join([*parts, text[at:]])
