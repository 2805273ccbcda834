"""The API server for code that does not await: tests and the demo.

A thin front of `hami_dra.kube.session` with an event loop of its own, which it drives only while a
call runs. Not for use inside a running event loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from hami_dra.kube.errors import NotFoundError
from hami_dra.kube.session import Session
from hami_dra.lab.wait import until
from hami_dra.migration import Json

T = TypeVar("T")

_ROOTS: Final = {
    "configmaps": "/api/v1",
    "events": "/api/v1",
    "limitranges": "/api/v1",
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "resourcequotas": "/api/v1",
    "secrets": "/api/v1",
    "serviceaccounts": "/api/v1",
    "daemonsets": "/apis/apps/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "mutatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations": "/apis/admissionregistration.k8s.io/v1",
    "validatingadmissionpolicies": "/apis/admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings": "/apis/admissionregistration.k8s.io/v1",
    "deviceclasses": "/apis/resource.k8s.io/v1",
    "resourceclaims": "/apis/resource.k8s.io/v1",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
    "resourceslices": "/apis/resource.k8s.io/v1",
}


class Api:
    """A session with one API server, one call at a time."""

    def __init__(self, kubeconfig: Path) -> None:
        self._runner = asyncio.Runner()
        self._session = self._runner.run(Session.connect(kubeconfig))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and the loop."""
        self._runner.run(self._session.close())
        self._runner.close()

    def run(self, call: Callable[[Session], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the session and return its result."""
        return self._runner.run(call(self._session))

    def list(
        self, resource: str, *, namespace: str = "", query: Mapping[str, str] | None = None
    ) -> list[Json]:
        """Return the objects of a collection, of one namespace or of all."""
        path = _path(resource, namespace)
        items: list[Json] = self.run(lambda session: session.get(path, query=query))["items"]
        return items

    def get(self, resource: str, name: str, *, namespace: str = "") -> Json:
        """Return an object."""
        path = _path(resource, namespace, name)
        return self.run(lambda session: session.get(path))

    def find(self, resource: str, name: str, *, namespace: str = "") -> Json | None:
        """Return an object, or None where there is none."""
        try:
            return self.get(resource, name, namespace=namespace)
        except NotFoundError:
            return None

    def create(
        self,
        resource: str,
        body: Json,
        *,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Create an object and return it as stored."""
        path = _path(resource, namespace)
        return self.run(lambda session: session.create(path, body, query=query))

    def patch(self, resource: str, name: str, body: Json, *, namespace: str = "") -> Json:
        """Merge a partial object into a stored one."""
        path = _path(resource, namespace, name)
        return self.run(lambda session: session.patch(path, body))

    def delete(self, resource: str, name: str, *, namespace: str = "", wait: bool = True) -> None:
        """Delete an object, if it is there, and wait until it is gone."""
        path = _path(resource, namespace, name)
        try:
            self.run(lambda session: session.delete(path))
        except NotFoundError:
            return
        if wait:
            until(
                lambda: self.find(resource, name, namespace=namespace) is None,
                what=f"{resource}/{name} is gone",
            )

    def delete_all(self, resource: str, namespace: str) -> None:
        """Delete all objects of a kind in a namespace, in the background."""
        path = _path(resource, namespace)
        options = {"propagationPolicy": "Background"}
        self.run(lambda session: session.delete(path, options=options))


def _path(resource: str, namespace: str, *name: str) -> str:
    within = (f"namespaces/{namespace}",) if namespace else ()
    return "/".join((_ROOTS[resource], *within, resource, *name))
