"""What a kubelet tells the API server about pods, for nodes that have none.

Pods that the scheduler bound become Running and ready, Jobs' pods stay so, and pods that are being
deleted go. Nothing is run. `python -m hami_dra.lab.kubelet --kubeconfig FILE` until SIGTERM.
"""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hami_dra.kube.cache import WatchCache, key_of
from hami_dra.kube.errors import ApiError, UnreachableError
from hami_dra.kube.session import Session
from hami_dra.lab.nodes import SIMULATED
from hami_dra.migration import Json

_PODS: Final = "/api/v1/pods"
_NODES: Final = "/api/v1/nodes"
_OURS: Final = {"labelSelector": ",".join(f"{key}={value}" for key, value in SIMULATED.items())}
_BOUND: Final = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


async def attend(session: Session) -> None:
    """Keep the status of every bound pod as a kubelet would, until cancelled."""
    changed = asyncio.Event()
    pods: WatchCache[Json] = WatchCache(
        session, _PODS, query=_BOUND, project=_needed, changed=changed.set
    )
    nodes: WatchCache[str] = WatchCache(
        session, _NODES, query=_OURS, project=_name, changed=changed.set
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pods.run())
        tasks.create_task(nodes.run())
        while True:
            await changed.wait()
            changed.clear()
            ours = set(nodes.values())
            await _attend_all(session, [pod for pod in pods.values() if pod["node"] in ours])


def _name(node: Json) -> str:
    name: str = node["metadata"]["name"]
    return name


def _needed(pod: Json) -> Json:
    """Keep what decides what a kubelet would say next."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    names = [container["name"] for container in pod["spec"]["containers"]]
    return {
        "metadata": {key: metadata.get(key) for key in ("namespace", "name", "uid")},
        "node": pod["spec"]["nodeName"],
        "containers": names,
        "leaving": "deletionTimestamp" in metadata,
        "running": status.get("phase") == "Running",
    }


async def _attend_all(session: Session, pods: Iterable[Json]) -> None:
    waiting = [pod for pod in pods if pod["leaving"] or not pod["running"]]
    await asyncio.gather(*(_attend(session, pod) for pod in waiting))


async def _attend(session: Session, pod: Json) -> None:
    namespace, name = key_of(pod)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    # Somebody else may have deleted it meanwhile; the watch will say so.
    with contextlib.suppress(ApiError, UnreachableError):
        if pod["leaving"]:
            uid = {"uid": pod["metadata"]["uid"]}
            await session.delete(path, options={"gracePeriodSeconds": 0, "preconditions": uid})
        else:
            await session.patch(f"{path}/status", {"status": _running(pod["containers"])})


def _running(names: Iterable[str]) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = ("Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in conditions
        ],
        "containerStatuses": [
            {
                "name": name,
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": "simulated",
                "imageID": "",
                "state": {"running": {"startedAt": now}},
            }
            for name in names
        ],
    }


async def _serve(kubeconfig: Path) -> None:
    async with await Session.connect(kubeconfig) as session:
        task = asyncio.ensure_future(attend(session))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator")
    asyncio.run(_serve(parser.parse_args().kubeconfig))


if __name__ == "__main__":
    main()
