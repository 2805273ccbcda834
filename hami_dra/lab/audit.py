"""Who asked the API server for what: its own audit log, as typed events.

A cluster keeps one when it was started with `audited=True`. Requests of the control plane's own
components are left out; those of everybody else are written when they are answered, those that
write claims and templates with both bodies.

    with cluster.audit.recording(api) as recorded:
        ...
    writes = [event for event in recorded.events() if event.is_write]
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from hami_dra.lab.api import Api
from hami_dra.lab.wait import until
from hami_dra.migration import Json

_ROUND: Final = "mutation.webhook.admission.k8s.io/round_"
"""Start of the annotations that the API server makes for each answer of a mutating webhook."""

_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})

_COMPONENTS: Final = (
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-scheduler",
)


def policy() -> Json:
    """Return the audit policy: what is written, and how much of it."""
    claims = {"group": "resource.k8s.io", "resources": ["resourceclaims", "resourceclaimtemplates"]}
    # One event a request: a watch when it begins, anything else when it is answered.
    watch = {"verbs": ["watch"], "omitStages": ["ResponseComplete"]}
    other = {"omitStages": ["ResponseStarted"]}
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "users": list(_COMPONENTS)},
            {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
            {"level": "RequestResponse", "resources": [claims], "verbs": sorted(_WRITES), **other},
            {"level": "Metadata", **watch},
            {"level": "Metadata", **other},
        ],
    }


@dataclass(frozen=True, slots=True)
class Event:
    """One answered request.

    Attributes:
        user: who asked, such as `system:serviceaccount:NAMESPACE:NAME`.
        agent: the program that asked.
        verb: get, list, watch, create, update, patch, delete or deletecollection.
        group: API group; empty for the core one.
        resource: such as `pods`; empty for a path that is no resource.
        subresource: such as `status`.
        namespace: empty for what has none.
        name: empty for a collection, or for a name that the server made up.
        code: the HTTP status of the answer.
        is_dry_run: whether the request asked that nothing be stored.
        reviews: names of the webhook configurations that were asked, once for each round.
        request: the body, where the policy keeps it.
        response: the answer's body, where the policy keeps it.
    """

    user: str
    agent: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    is_dry_run: bool
    reviews: tuple[str, ...]
    request: Json | None
    response: Json | None

    @classmethod
    def of(cls, item: Json) -> Self:
        """Read an `audit.k8s.io/v1` Event."""
        where = item.get("objectRef") or {}
        return cls(
            user=item["user"].get("username", ""),
            agent=item.get("userAgent", ""),
            verb=item["verb"],
            group=where.get("apiGroup", ""),
            resource=where.get("resource", ""),
            subresource=where.get("subresource", ""),
            namespace=where.get("namespace", ""),
            name=where.get("name", ""),
            code=(item.get("responseStatus") or {}).get("code", 0),
            is_dry_run="dryRun=All" in item["requestURI"],
            reviews=tuple(
                json.loads(text)["configuration"]
                for key, text in (item.get("annotations") or {}).items()
                if key.startswith(_ROUND)
            ),
            request=item.get("requestObject"),
            response=item.get("responseObject"),
        )

    @property
    def is_write(self) -> bool:
        """Tell whether something was to be stored, whatever became of it."""
        return self.verb in _WRITES and not self.is_dry_run


@dataclass(frozen=True, slots=True)
class Recording:
    """What was asked since some moment.

    Attributes:
        log: the log.
        position: where the moment is in it, in bytes.
        api: any session.
    """

    log: "AuditLog"
    position: int
    api: Api

    def events(self, *, user: str | None = None) -> list[Event]:
        """Return what was answered since, of one user or of all, once all of it is written."""
        self.log.settle(self.api)
        found = self.log.events(self.position)
        return [event for event in found if user in {None, event.user}]


@dataclass(frozen=True, slots=True)
class AuditLog:
    """The audit log of one cluster.

    Attributes:
        path: the file that the API server writes.
    """

    path: Path

    def events(self, position: int = 0) -> Iterator[Event]:
        """Yield what is written from a position on; a line in the making is left for later."""
        with self.path.open("rb") as file:
            file.seek(position)
            for line in file:
                if line.endswith(b"\n"):
                    yield Event.of(json.loads(line))

    @contextmanager
    def recording(self, api: Api) -> Iterator[Recording]:
        """Look at what is asked from now on, also after the block."""
        self.settle(api)
        yield Recording(self, self.path.stat().st_size, api)

    def settle(self, api: Api) -> None:
        """Wait until everything that was answered before is written.

        The server writes in the order in which it answers, so it is enough to see a request of
        our own come out.
        """
        position = self.path.stat().st_size if self.path.exists() else 0
        name = f"mark-{secrets.token_hex(8)}"
        api.find("configmaps", name, namespace="default")
        until(
            lambda: any(event.name == name for event in self.events(position)),
            what="the audit log has come as far",
            every_s=0.01,
        )
