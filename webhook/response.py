"""The whole vocabulary of answers to a review.

An admission has no way to deny and a refusal no way to patch, so no handler does it by accident.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from hami_dra.kube.templates import Outcome
from hami_dra.migration import Json

FORBIDDEN: Final = 403
"""The object is right, but a quota has no room for it; what the API server says of its own."""

UNPROCESSABLE: Final = 422
"""The pod is wrong."""

CONFLICT: Final = 409
"""The pod is right, but an object that it needs is not."""


class Decision(StrEnum):
    """What became of a review, for metrics and the log."""

    UNCHANGED = "unchanged"
    MUTATED = "mutated"
    REJECTED = "rejected"
    BAD_REQUEST = "bad_request"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Admitted:
    """The pod may be created, with the patch applied.

    Attributes:
        patch: RFC 6902 operations; empty leaves the pod as it is.
        warnings: what its author may want to know, one line each.
        templates: the templates that it needs and what it took to have them.
    """

    patch: list[Json] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    templates: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def decision(self) -> Decision:
        """Say whether the pod is changed."""
        return Decision.MUTATED if self.patch else Decision.UNCHANGED


@dataclass(frozen=True, slots=True)
class Refused:
    """The pod must not be created.

    Attributes:
        message: what its author has to know.
        code: the HTTP status that the author's client shows.
    """

    message: str
    code: int = UNPROCESSABLE

    @property
    def decision(self) -> Decision:
        """Say that the pod is rejected."""
        return Decision.REJECTED


Response = Admitted | Refused
"""The answer to a review."""
