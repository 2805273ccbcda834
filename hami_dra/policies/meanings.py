"""What each field of a policy means, as the text below it in the models says.

Read from the source when somebody asks: pydantic would read it at every start.
"""

import ast
import inspect
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from hami_dra.migration.family import Record


@cache
def meanings(record: type[Record]) -> Mapping[str, str]:
    """Return the meaning of each field on one line, by the name that files use.

    Raises:
        OSError: if the source of the models is not installed.
    """
    [described] = ast.parse(inspect.getsource(record)).body
    texts = {
        field.target.id: " ".join(note.value.value.split())
        for field, note in pairwise(getattr(described, "body", ()))
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(note, ast.Expr)
        and isinstance(note.value, ast.Constant)
        and isinstance(note.value.value, str)
    }
    fields = record.model_fields.items()
    return {info.alias or name: texts[name] for name, info in fields if name in texts}
