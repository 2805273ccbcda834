"""The wire: AdmissionReview v1 in, AdmissionReview v1 out. Nothing else knows its shape.

Only what we need is read, and the pod stays a plain dict, so fields of tomorrow pass untouched.
"""

import re
from binascii import b2a_base64
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import from_json, to_json

from hami_dra.migration import Json, Notice
from webhook.response import FORBIDDEN, Admitted, Refused, Response

API_VERSION: Final = "admission.k8s.io/v1"
"""The version of AdmissionReview that is spoken, in both directions."""

LONGEST_WARNING: Final = 120
"""Kubernetes asks for at most this many characters in a warning."""

MOST_WARNINGS: Final = 30
"""Together they stay below 4096 characters, beyond which the API server cuts them."""

_KIND: Final = "AdmissionReview"
_EXPECTED: Final = f"an AdmissionReview of {API_VERSION}"
_REPORTED_ERRORS: Final = 3
_REMEMBERED: Final = 512
_LONGEST_REMEMBERED: Final = 8 * 1024  # with their number it keeps what is remembered below 10 MiB
_LONGEST_NAME: Final = 253
_CLAIMS: Final = "resource.k8s.io/v1/resourceclaims/"

_NAMESPACE: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_is_namespace: Final = re.compile(_NAMESPACE).fullmatch


class RequestError(Exception):
    """The caller sent something that is not an AdmissionReview v1."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a review asks.

    Attributes:
        uid: identifies the review; the answer carries it.
        namespace: where the object will live; its own field is not to be trusted (ruling 22).
        operation: CREATE, UPDATE, DELETE or CONNECT.
        resource: group, version, resource and subresource, such as `/v1/pods/`.
        dry_run: whether nothing may be written.
        object: the object under review, as JSON.
    """

    uid: str
    namespace: str
    operation: str
    resource: str
    dry_run: bool
    object: Json

    @property
    def creates_pod(self) -> bool:
        """Tell whether a pod is being created."""
        return self.operation == "CREATE" and self.resource == "/v1/pods/"

    @property
    def creates_claim(self) -> bool:
        """Tell whether a ResourceClaim is being created."""
        return self.operation == "CREATE" and self.resource == _CLAIMS

    @property
    def name(self) -> str:
        """Return the object's name, or what its name will start with; for people only.

        Nobody has checked it yet, so it is cut where a name ends at the latest.
        """
        metadata = self.object.get("metadata")
        if not isinstance(metadata, dict):
            return ""
        return str(metadata.get("name") or metadata.get("generateName") or "")[:_LONGEST_NAME]


class _Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore")


class _Resource(_Wire):
    group: str = ""
    version: str
    resource: str


class _Request(_Wire):
    uid: Annotated[str, Field(min_length=1)]
    # The namespace becomes part of a URL, so nothing but a name may pass.
    namespace: Annotated[str, Field(pattern=rf"^({_NAMESPACE})?$")] = ""
    operation: str
    resource: _Resource
    sub_resource: str = ""
    dry_run: bool | None = None
    object: dict[str, Any] | None = None


class _Review(_Wire):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _Request


def parse(body: bytes | bytearray) -> Request:
    """Read a review from the bytes that the API server sent.

    Raises:
        RequestError: if they are not an AdmissionReview v1; the message quotes no content.
    """
    try:
        # NaN and infinities are no JSON, and the API server could not read them back.
        document = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise RequestError(f"found no JSON ({error}), expected {_EXPECTED}") from None
    return usual(document) or checked(document)


def usual(document: object) -> Request | None:
    """Read a review with the fields and types that the API server writes for a pod.

    It decides nothing: whatever is unusual is left to `checked`, which says the same of the rest
    and takes longer.
    """
    # Not a `match`, which takes four times as long.
    if not isinstance(document, dict) or document.get("apiVersion") != API_VERSION:
        return None
    request = document.get("request")
    if document.get("kind") != _KIND or not isinstance(request, dict) or "subResource" in request:
        return None
    look = request.get
    uid, namespace, operation = look("uid"), look("namespace"), look("operation")
    where, found, dry_run = look("resource"), look("object"), look("dryRun")
    if not (
        isinstance(uid, str)
        and uid
        and isinstance(namespace, str)
        and _is_namespace(namespace)
        and isinstance(operation, str)
        and isinstance(found, dict)
        and isinstance(dry_run, bool)
    ):
        return None
    resource = _usual_resource(where)
    if resource is None:
        return None
    return Request(uid, namespace, operation, resource, dry_run, found)


def _usual_resource(where: object) -> str | None:
    """Return group, version and resource as a request names them; None unless all are text."""
    if not isinstance(where, dict):
        return None
    group, version, name = where.get("group"), where.get("version"), where.get("resource")
    if isinstance(group, str) and isinstance(version, str) and isinstance(name, str):
        return f"{group}/{version}/{name}/"
    return None


def checked(document: object) -> Request:
    """Read any review.

    Raises:
        RequestError: if it is none, with what is wrong.
    """
    try:
        asked = _Review.model_validate(document).request
    except ValidationError as error:
        raise RequestError(_explain(error)) from None
    where = asked.resource
    request = Request(
        uid=asked.uid,
        namespace=asked.namespace,
        operation=asked.operation,
        resource=f"{where.group}/{where.version}/{where.resource}/{asked.sub_resource}",
        dry_run=bool(asked.dry_run),
        object=asked.object or {},
    )
    if (request.creates_pod or request.creates_claim) and not request.namespace:
        raise RequestError("request.namespace: found none, expected the namespace of the object")
    return request


def _explain(error: ValidationError) -> str:
    """Say what is wrong without the input, which may hold secrets."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [
        f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}"
        for one in found[:_REPORTED_ERRORS]
    ]
    return f"found no AdmissionReview, expected {_EXPECTED}: {'; '.join(parts)}"


def _answer(response: Response) -> Json:
    match response:
        case Refused(message=message, code=code):
            reason = {"reason": "Forbidden"} if code == FORBIDDEN else {}
            status = {"code": code, "message": message, **reason}
            return {"allowed": False, "status": status}
        case Admitted(patch=patch, warnings=warnings):
            answer: Json = {"allowed": True}
            if patch:
                answer["patchType"] = "JSONPatch"
                answer["patch"] = b2a_base64(to_json(patch), newline=False).decode()
            if warnings:
                answer["warnings"] = list(warnings)
            return answer


class _Answers:
    """Remembers what was rendered last, since pods of one workload share their patch."""

    def __init__(self) -> None:
        # A patch is kept with its answer, so that no other one gets its identity.
        self._rendered: dict[int, tuple[list[Json], tuple[str, ...], bytes]] = {}

    def render(self, response: Response) -> bytes:
        """Return an answer as JSON, without the review around it."""
        if isinstance(response, Refused) or not response.patch:
            return to_json(_answer(response))
        patch, warnings = response.patch, response.warnings
        found = self._rendered.get(id(patch))
        if found is not None and found[0] is patch and found[1] == warnings:
            return found[2]
        if len(self._rendered) >= _REMEMBERED:
            self._rendered.clear()
        answer = to_json(_answer(response))
        if len(answer) <= _LONGEST_REMEMBERED:
            self._rendered[id(patch)] = (patch, warnings, answer)
        return answer


_ANSWERS: Final = _Answers()
_HEAD: Final = b'{"apiVersion":"%b","kind":"%b","response":{"uid":' % (
    API_VERSION.encode(),
    _KIND.encode(),
)


def encode(uid: str, response: Response) -> bytes:
    """Render the review that carries the answer back, as JSON."""
    return b"%b%b,%b}" % (_HEAD, to_json(uid), _ANSWERS.render(response)[1:])


def warnings_of(notices: tuple[Notice, ...]) -> tuple[str, ...]:
    """Turn notices into warnings that the API server passes on whole: few, short, printable."""
    texts = tuple(dict.fromkeys(_warning(notice) for notice in notices))
    if len(texts) <= MOST_WARNINGS:
        return texts
    left = len(texts) - MOST_WARNINGS + 1
    return (*texts[: MOST_WARNINGS - 1], f"and {left} more; `hami-dra convert` shows all")


def _warning(notice: Notice) -> str:
    """Render a notice in the form that says most and still fits.

    Of an annotation the name is kept as long as that is possible, since messages speak of it.
    """
    bare = f"{notice.code}: {notice.message}"
    _, bracket, name = notice.path.partition("[")
    named = f"{notice.code}: {name.removesuffix(']')}: {notice.message}"
    is_member = notice.path.startswith("metadata.") and bracket
    for text in (str(notice), named if is_member else bare, bare):
        line = "".join(c if c.isprintable() else " " for c in text)
        if len(line) <= LONGEST_WARNING:
            return line
    return f"{line[: LONGEST_WARNING - 3]}..."
