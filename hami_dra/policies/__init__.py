"""Policy files: one YAML document that says what a migration means, read alike by every shell.

Reads files and nothing else; `hami_dra.migration` decides what the values mean.
"""

from hami_dra.policies.file import API_VERSION, KIND, load, parse
from hami_dra.policies.problem import PolicyFileError

__all__ = ["API_VERSION", "KIND", "PolicyFileError", "load", "parse"]
