"""YAML and JSON text: read so that comments, order and quotes survive being written again."""

import json
import re
from copy import deepcopy
from datetime import date
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import walk_tree
from ruamel.yaml.util import load_yaml_guess_indent

from hami_dra.migration import Json

_NEVER_WRAP: Final = 1 << 20
_MAPPING_STEP: Final = re.compile(r"^[\w./-]+:[ \t]*\n( +)[^\s#-]", re.MULTILINE)


class UnparsableError(Exception):
    """The text is neither YAML nor JSON; the message says where and why."""


class RoundTrip:
    """A parsed document that remembers how it was written."""

    def __init__(self, text: str) -> None:
        self._json = text.lstrip().startswith("{")
        self._yaml = _yaml(text)
        try:
            root = json.loads(text) if self._json else self._yaml.load(text)
        except ValueError as error:
            raise UnparsableError(str(error)) from error
        except YAMLError as error:
            raise UnparsableError(" ".join(str(error).split())) from error
        # Aliases and merge keys get copies of their own, so that an edit changes one place only.
        self.root: Any = _unshared(root, set())

    def dump(self) -> str:
        """Write the document as it stands now."""
        if self._json:
            return json.dumps(self.root, indent=2, ensure_ascii=False) + "\n"
        stream = StringIO()
        self._yaml.dump(self.root, stream)
        return stream.getvalue()


def _unshared(node: Any, seen: set[int]) -> Any:  # noqa: ANN401 - any YAML
    """Return a node whose containers stand nowhere else; nodes that were alone stay themselves."""
    if not isinstance(node, dict | list):
        return node
    if id(node) in seen:
        node = deepcopy(node)
    elif isinstance(node, CommentedMap) and node.merge:
        node = CommentedMap(node.items())
    seen.add(id(node))
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        own = _unshared(value, seen)
        if own is not value:
            node[key] = own
    return node


def plain(node: Any) -> Any:  # noqa: ANN401 - any YAML
    """Return a node as plain JSON, the form in which an API server would see it."""
    if isinstance(node, dict):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(item) for item in node]
    if isinstance(node, bool) or node is None:
        return node
    for kind in (str, int, float):
        if isinstance(node, kind):
            return kind(node)
    return node.isoformat() if isinstance(node, date) else str(node)


def manifest(document: Json) -> str:
    """Write an object of ours as YAML."""
    stream = StringIO()
    # A plain copy shares no nodes, so nothing becomes an alias; text of many lines stays readable.
    copy = plain(document)
    walk_tree(copy)
    _configured(YAML()).dump(copy, stream)
    return stream.getvalue()


def _yaml(text: str) -> YAML:
    try:
        _, sequence, offset = load_yaml_guess_indent(text)
    except YAMLError:
        sequence, offset = None, None
    mapping = _MAPPING_STEP.search(text)
    yaml = _configured(YAML())
    yaml.indent(
        mapping=len(mapping.group(1)) if mapping else 2,
        sequence=sequence or 2,
        offset=offset or 0,
    )
    return yaml


def _configured(yaml: YAML) -> YAML:
    yaml.preserve_quotes = True
    yaml.width = _NEVER_WRAP
    return yaml
