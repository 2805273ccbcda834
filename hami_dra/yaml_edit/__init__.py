"""Edit YAML and JSON documents in place: text in, text out, all that need not change untouched.

Pure: no I/O, no logging. Parsing is a library's; what is ours are splices at the positions that it
reports (decision 0021).
"""

from hami_dra.yaml_edit.edit import edited
from hami_dra.yaml_edit.parse import Document, parse
from hami_dra.yaml_edit.problem import EditError, SyntaxProblem
from hami_dra.yaml_edit.write import as_yaml

__all__ = ["Document", "EditError", "SyntaxProblem", "as_yaml", "edited", "parse"]
