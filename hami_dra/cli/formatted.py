"""Print everything in one format, whatever it was written in."""

import json
import sys
from dataclasses import dataclass, field

from hami_dra.cli.documents import SEPARATORS, split
from hami_dra.cli.sources import Source, as_text
from hami_dra.migration import Json
from hami_dra.yaml_edit import as_yaml


@dataclass(slots=True)
class AsJson:
    """One JSON document: the only object, or a List of all."""

    _objects: list[Json] = field(default_factory=list)

    def put(self, source: Source, data: bytes, *, changed: bool) -> None:  # noqa: ARG002
        """Collect."""
        for document in split(source.name, as_text(source.name, data)):
            value = document.parsed().value
            if value is not None:
                self._objects.append(value)

    def finish(self) -> None:
        """Print."""
        only = self._objects[0] if len(self._objects) == 1 else None
        listed = {"apiVersion": "v1", "kind": "List", "items": self._objects}
        text = json.dumps(only or listed, indent=2, ensure_ascii=False) + "\n"
        # Half a pair of surrogates, which JSON can say, is no UTF-8; this escape is JSON's own.
        sys.stdout.buffer.write(text.encode(errors="backslashreplace"))


@dataclass(slots=True)
class AsYaml:
    """A stream of YAML documents; what was YAML stays as it was written."""

    _parts: list[str] = field(default_factory=list)

    def put(self, source: Source, data: bytes, *, changed: bool) -> None:  # noqa: ARG002
        """Print."""
        for document in split(source.name, as_text(source.name, data)):
            is_json = document.text.lstrip().startswith("{")
            text = as_yaml(document.parsed().value) if is_json else document.text
            lead = document.lead + ("\n" if is_json and document.is_behind else "")
            is_separated = not self._parts or lead.startswith(SEPARATORS)
            ending = "" if text.endswith("\n") or not text else "\n"
            self._parts.append(("" if is_separated else "---\n") + lead + text + ending)

    def finish(self) -> None:
        """Print."""
        sys.stdout.write("".join(self._parts))
