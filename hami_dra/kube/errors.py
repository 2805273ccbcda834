"""What can go wrong between us and an API server, in our own words.

Callers outside the fence know neither aiohttp nor the generated client, so they catch these.
"""

import json

from hami_dra.migration.json import Json


class ApiError(Exception):
    """The API server answered, and the answer is no.

    Attributes:
        status: the HTTP status, such as 404.
        reason: the machine-readable reason of the Status object, such as `AlreadyExists`.
        message: the server's sentence.
        details: the Status object's `details`, empty when it has none.
    """

    def __init__(self, status: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}

    @property
    def retry_after_s(self) -> int:
        """Return for how long the server asks to be left alone; 0 when it does not."""
        asked = self.details.get("retryAfterSeconds")
        return asked if isinstance(asked, int) else 0

    def __str__(self) -> str:
        """Render as one line that names the status first."""
        return f"{self.status} {self.reason}: {self.message}"

    @staticmethod
    def from_status(status: Json, *, code: int | None = None) -> "ApiError":
        """Build the error of a Status object, as answers and watch streams carry it."""
        found = code or status.get("code") or 0
        error = _KINDS.get(found, ApiError)(
            found,
            status.get("reason") or "Unknown",
            status.get("message") or "the API server gave no message",
            status.get("details"),
        )
        if isinstance(error, GoneError):
            error.resume = (status.get("metadata") or {}).get("continue") or ""
        return error

    @staticmethod
    def from_answer(code: int, phrase: str, body: bytes) -> "ApiError":
        """Build the error of an HTTP answer, whose body need not be a Status object."""
        try:
            status = json.loads(body)
        except ValueError:
            status = None
        if isinstance(status, dict) and status.get("kind") == "Status":
            return ApiError.from_status(status, code=code)
        text = body[:200].decode(errors="replace").strip()
        return ApiError.from_status({"reason": phrase, "message": text}, code=code)


class NotFoundError(ApiError):
    """404: the object, its namespace or the whole API is not there."""


class ConflictError(ApiError):
    """409: the name is taken, or the object changed since it was read."""


class GoneError(ApiError):
    """410: the resource version is too old to continue from; list again.

    Attributes:
        resume: goes on with a list where it was, as its objects are by now; empty for a watch.
    """

    resume = ""


class UnreachableError(Exception):
    """No answer: connection refused, cut, timed out or not speaking HTTP."""


class ConfigurationError(Exception):
    """There is no usable description of how to reach an API server."""


_KINDS: dict[int, type[ApiError]] = {404: NotFoundError, 409: ConflictError, 410: GoneError}
