"""Measure how fast claims are generated, with a burst of pods that nobody schedules.

It is the only part of a preflight that writes: a namespace of its own, which goes again whatever
happens; one that a killed run left behind goes with the next.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

from hami_dra.kube.errors import ApiError, NotFoundError, UnreachableError
from hami_dra.kube.pages import pages
from hami_dra.kube.removal import uninterrupted
from hami_dra.kube.session import Session
from hami_dra.migration import Json
from hami_dra.preflight.collect import HARMLESS
from hami_dra.preflight.evidence import Rate

MARK: Final = {"hami-dra.io/throw-away": "preflight"}
"""Label of the namespace that a measurement makes."""

_PODS: Final = 150  # 300 writes: ten times the stock burst of 30, less than the raised one of 400
_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.1
_TEMPLATE: Final = "throw-away"
_NAMESPACES: Final = "/api/v1/namespaces"
_DRA: Final = "/apis/resource.k8s.io/v1"


async def measure(
    session: Session,
    device_class: str,
    *,
    say: Callable[[str], None] = lambda _: None,
    pods: int = _PODS,
) -> Rate:
    """Create pods at once and time their claims.

    Args:
        session: the API server.
        device_class: what the claims ask for; nothing is ever allocated.
        say: told what happens next.
        pods: how many.

    Raises:
        ApiError: if the API server refuses an object.
        TimeoutError: if the claims do not come within a minute.
        UnreachableError: if it does not answer.
    """
    await _remove_leftovers(session)
    async with _namespace(session) as namespace:
        say(f"creating {pods} pods that nobody schedules, in the namespace {namespace}")
        await session.create(
            f"{_DRA}/namespaces/{namespace}/resourceclaimtemplates", _template(device_class)
        )
        clock = asyncio.get_running_loop().time
        path, started = f"{_NAMESPACES}/{namespace}/pods", clock()
        await asyncio.gather(*(session.create(path, _pod(number)) for number in range(pods)))
        created_s = clock() - started
        async with asyncio.timeout(_TIMEOUT_S):
            await _await_claims(session, namespace, pods)
        seconds = clock() - started
        say("removing them")
    return Rate(pods, created_s, seconds)


async def _await_claims(session: Session, namespace: str, count: int) -> None:
    """Wait until so many pods know their claims, which is all that their scheduler waits for."""
    path = f"{_NAMESPACES}/{namespace}/pods"
    known = 0
    while known < count:
        await asyncio.sleep(_PAUSE_S)
        known = 0
        async with aclosing(pages(session, path)) as listing:
            async for items in listing:
                known += sum(bool(item["status"].get("resourceClaimStatuses")) for item in items)


@asynccontextmanager
async def _namespace(session: Session) -> AsyncIterator[str]:
    """Have a namespace in which pods can be created, until the end of the block."""
    body = {"metadata": {"generateName": "hami-dra-preflight-", "labels": dict(MARK)}}
    made = await session.create(_NAMESPACES, body)
    name = made["metadata"]["name"]
    try:
        await _service_account(session, name)
        yield name
    finally:
        await uninterrupted(_remove(session, name))


async def _service_account(session: Session, namespace: str) -> None:
    """Wait for what the API server demands of a namespace before it takes pods."""
    async with asyncio.timeout(_TIMEOUT_S):
        while True:
            with suppress(NotFoundError):
                await session.get(f"{_NAMESPACES}/{namespace}/serviceaccounts/default")
                return
            await asyncio.sleep(_PAUSE_S)


async def _remove_leftovers(session: Session) -> None:
    selector = ",".join(f"{name}={value}" for name, value in MARK.items())
    query = {"labelSelector": selector}
    async with aclosing(pages(session, _NAMESPACES, query=query, metadata_only=True)) as listing:
        async for items in listing:
            for item in items:
                await _remove(session, item["metadata"]["name"])


async def _remove(session: Session, namespace: str) -> None:
    """Delete a namespace and first its pods, at once, since no kubelet will ever end them."""
    now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
    with suppress(ApiError, UnreachableError):  # the namespace's own end takes them along
        await session.delete(f"{_NAMESPACES}/{namespace}/pods", options=now)
    with suppress(NotFoundError):
        await session.delete(f"{_NAMESPACES}/{namespace}")


def _template(device_class: str) -> Json:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    devices = {"requests": [{"name": "card", "exactly": exactly}]}
    return {"metadata": {"name": _TEMPLATE}, "spec": {"spec": {"devices": devices}}}


def _pod(number: int) -> Json:
    """Build a pod whose scheduler does not exist."""
    return {
        "metadata": {"name": f"throw-away-{number}"},
        "spec": {
            "schedulerName": "hami-dra-preflight-nobody",
            "automountServiceAccountToken": False,
            "resourceClaims": [{"name": "card", "resourceClaimTemplateName": _TEMPLATE}],
            "containers": [
                {
                    "name": "none",
                    "image": "none",
                    "resources": {"claims": [{"name": "card"}]},
                    **HARMLESS,
                }
            ],
        },
    }
