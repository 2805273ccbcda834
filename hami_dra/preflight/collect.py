"""Collect what the facts are judged by. Nothing is written: what is sent goes as a dry run.

A read that is refused, or gets no answer, hides its own part and no other.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from hami_dra.kube.errors import ApiError, NotFoundError, UnreachableError
from hami_dra.kube.pages import pages
from hami_dra.kube.session import Session
from hami_dra.migration import Family, Json, Policy
from hami_dra.migration.claim import MANAGED_BY
from hami_dra.migration.inventory import sizes_of
from hami_dra.migration.registration import GUARD_NAME, NAME
from hami_dra.preflight import dial
from hami_dra.preflight.coexistence import NODE_ANNOTATIONS
from hami_dra.preflight.evidence import Evidence, Hidden, Node, Pool, Probe, Served
from hami_dra.preflight.registration import registered

T = TypeVar("T")

_DRA: Final = "/apis/resource.k8s.io/v1"
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_DRY_RUN: Final = {"dryRun": "All"}
_HAMI_SCHEDULER: Final = {"labelSelector": "app.kubernetes.io/component=hami-scheduler"}
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_UNAVAILABLE: Final = 503


HARMLESS: Final = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
}
"""What the strictest pod security standard asks of a container."""


async def collect(session: Session, policy: Policy, *, namespace: str) -> Evidence:
    """Collect everything that costs nothing.

    Args:
        session: the API server.
        policy: which resources and classes matter.
        namespace: where the dry runs go.

    Raises:
        UnreachableError: if the API server does not answer.
        ApiError: if it knows neither us nor the namespace, which tells nothing of the cluster.
    """
    # Alone and first: a server that is not there is one error and not twenty.
    server = await _seen(session.get("/version"))
    guard = f"{_ADMISSION}/validatingadmissionpolicies/{GUARD_NAME}"
    binding = f"{_ADMISSION}/validatingadmissionpolicybindings/{GUARD_NAME}"
    validating = f"{_ADMISSION}/validatingwebhookconfigurations/{NAME}"
    parts = await _together(
        {
            "api": _found(session, _DRA),
            "capacity": _template(session, namespace, policy, {"exactly": _exact(policy)}),
            "alternatives": _template(
                session, namespace, policy, {"firstAvailable": [{"name": "a", **_exact(policy)}]}
            ),
            "classes": _all(session, f"{_DRA}/deviceclasses"),
            "pools": _all(session, f"{_DRA}/resourceslices", pool_of),
            "nodes": _all(session, "/api/v1/nodes", node_of),
            "mutating": _all(session, f"{_ADMISSION}/mutatingwebhookconfigurations"),
            "validating": _found(session, validating),
            "guard": _found(session, guard),
            "guard_binding": _found(session, binding),
            "schedulers": _all(session, "/apis/apps/v1/deployments", query=_HAMI_SCHEDULER),
            "limit_ranges": _all(session, "/api/v1/limitranges"),
            "quotas": _all(session, "/api/v1/resourcequotas"),
            "pod": _pod(session, namespace, policy),
            "claim": _claim(session, namespace, policy),
        }
    )
    evidence = Evidence(now=datetime.now(UTC), server=server, **parts)
    return replace(evidence, served=await _served(session, evidence))


def probed_family(policy: Policy) -> Family:
    """Return the family that the dry runs speak of: the first that is converted."""
    return next((family for family in policy.families if family.device_class), Family())


def pool_of(item: Json) -> Pool:
    """Reduce a ResourceSlice to what the facts need; a large cluster has thousands."""
    spec = item["spec"]
    devices = spec.get("devices") or []
    domain = f"{spec['driver']}/"  # names may stand with it or without
    shared = [device for device in devices if device.get("allowMultipleAllocations")]
    published = [
        frozenset(name.removeprefix(domain) for name in device.get("capacity") or ())
        for device in shared or devices  # partitions beside them publish others
    ]
    return Pool(
        driver=spec["driver"],
        node=spec.get("nodeName") or "",
        sizes=sizes_of(item, driver=spec["driver"]),
        devices=len(devices),
        shareable=len(shared),
        capacities=frozenset.intersection(*published) if published else frozenset(),
    )


def node_of(item: Json) -> Node:
    """Reduce a node to what the facts need."""
    annotations = item["metadata"].get("annotations") or {}
    return Node(
        name=item["metadata"]["name"],
        allocatable=(item.get("status") or {}).get("allocatable") or {},
        annotations={k: v for k, v in annotations.items() if k.startswith(NODE_ANNOTATIONS)},
    )


async def _together(reads: Mapping[str, Awaitable[Any]]) -> dict[str, Any]:
    """Read side by side; raise UnreachableError only if none gets an answer."""
    found = await asyncio.gather(*(_answered(each) for each in reads.values()))
    silent = [each for each in found if isinstance(each, UnreachableError)]
    if len(silent) == len(found):
        raise silent[0]
    return {
        name: Hidden(str(each)) if isinstance(each, UnreachableError) else each
        for name, each in zip(reads, found, strict=True)
    }


async def _answered(read: Awaitable[T]) -> T | UnreachableError:
    try:
        return await read
    except UnreachableError as error:
        return error


async def _seen(read: Awaitable[T]) -> T | Hidden:
    """Return what was read, or why it was not."""
    try:
        return await read
    except ApiError as error:
        return _hidden(error)


def _hidden(error: ApiError) -> Hidden:
    if error.status == _UNAUTHORIZED:
        raise error  # nobody knows us, so that everything would be hidden
    return Hidden(str(error))


async def _found(session: Session, path: str) -> Json | Hidden | None:
    try:
        return await session.get(path)
    except NotFoundError:
        return None
    except ApiError as error:
        return _hidden(error)


async def _all(
    session: Session,
    path: str,
    project: Callable[[Json], Any] = lambda item: item,
    *,
    query: Mapping[str, str] | None = None,
) -> list[Any] | Hidden:
    """Read a collection, keeping of each object what is needed."""

    async def read() -> list[Any]:
        kept: list[Any] = []
        async with aclosing(pages(session, path, query=query)) as listing:
            async for items in listing:
                kept += map(project, items)
        return kept

    return await _seen(read())


async def _dry_run(session: Session, path: str, body: Json) -> Probe | Hidden:
    """Send an object that is not to be stored; a refusal is an answer, a lack of rights is not."""
    try:
        return Probe(await session.create(path, body, query=_DRY_RUN))
    except ApiError as error:
        is_denied = error.status == _FORBIDDEN and "cannot create resource" in error.message
        if is_denied or error.status == _UNAUTHORIZED:
            return _hidden(error)
        if isinstance(error, NotFoundError) and error.details.get("kind") == "namespaces":
            raise
        return Probe(None, error.message)


async def _template(
    session: Session, namespace: str, policy: Policy, request: Json
) -> Probe | Hidden:
    body = _of_claims("ResourceClaimTemplate", {"spec": _asking(policy, request)})
    path = f"{_DRA}/namespaces/{namespace}/resourceclaimtemplates"
    return await _dry_run(session, path, body)


async def _claim(session: Session, namespace: str, policy: Policy) -> Probe | Hidden:
    body = _of_claims("ResourceClaim", _asking(policy, {"exactly": _exact(policy)}))
    return await _dry_run(session, f"{_DRA}/namespaces/{namespace}/resourceclaims", body)


def _of_claims(kind: str, spec: Json) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"generateName": "hami-dra-preflight-", "labels": dict(MANAGED_BY)},
        "spec": spec,
    }


def _asking(policy: Policy, request: Json) -> Json:
    return {"devices": {"requests": [{"name": probed_family(policy).entry_prefix, **request}]}}


def _exact(policy: Policy) -> Json:
    """Build the smallest request for a share."""
    family = probed_family(policy)
    return {
        "deviceClassName": family.device_class,
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {family.capacities.memory: "1Mi"}},
    }


async def _pod(session: Session, namespace: str, policy: Policy) -> Probe | Hidden:
    limits = {probed_family(policy).card_names[0]: "1"}
    container = {"name": "probe", "image": "none", "resources": {"limits": limits}, **HARMLESS}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "hami-dra-preflight-"},
        "spec": {"containers": [container]},
    }
    return await _dry_run(session, f"/api/v1/namespaces/{namespace}/pods", body)


async def _served(session: Session, evidence: Evidence) -> Served | Hidden:
    """Ask the webhook itself: by its URL, or through the API server's way to its Service."""
    if isinstance(evidence.mutating, Hidden):
        return evidence.mutating
    config = (registered(evidence) or {}).get("clientConfig") or {}
    if url := config.get("url"):
        return await dial.ask(url, config)
    if service := config.get("service"):
        root = f"/api/v1/namespaces/{service['namespace']}/services"
        path = f"{root}/https:{service['name']}:{service.get('port', 443)}/proxy/readyz"
        return await _ready(session, path)
    return Hidden("the webhook is not registered")


async def _ready(session: Session, path: str) -> Served | Hidden:
    """Ask a Service; 503 is an answer: of a replica that waits, or that there is no replica."""
    try:
        return Served(b"", "", await session.get(path))
    except UnreachableError as error:  # the API server waits for a pod that it cannot reach
        return Hidden(str(error))
    except ApiError as error:
        if error.status != _UNAVAILABLE:
            return Hidden(str(error))
        try:
            body = json.loads(error.message)
        except ValueError:
            body = None
        return Served(b"", "", body if isinstance(body, dict) else None)
