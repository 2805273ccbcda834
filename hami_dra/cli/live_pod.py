"""One pod of a live cluster; imported by the command that asks for it alone."""

import asyncio
from pathlib import Path
from urllib.parse import quote

from hami_dra.cli.cluster import CLUSTER_ERRORS
from hami_dra.cli.exits import UNREADABLE, fail
from hami_dra.kube.session import Session
from hami_dra.migration import Json


def read(namespace: str, name: str, context: str | None, kubeconfig: Path | None) -> Json:
    """Return a pod as its author wrote it, as far as the cluster still knows.

    The node that the scheduler chose is left out: an author who names one bypasses it. Ends the
    command if the pod is not there.
    """
    try:
        pod = asyncio.run(_read(namespace, name, context, kubeconfig))
    except CLUSTER_ERRORS as error:
        fail(f"cluster: {error}", code=UNREADABLE)
    pod.setdefault("kind", "Pod")
    pod.get("spec", {}).pop("nodeName", None)
    return pod


async def _read(namespace: str, name: str, context: str | None, kubeconfig: Path | None) -> Json:
    async with await Session.connect(kubeconfig, context) as session:
        within = f"/api/v1/namespaces/{quote(namespace, safe='')}"
        return await session.get(f"{within}/pods/{quote(name, safe='')}")
