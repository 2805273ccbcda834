"""The main job from end to end: unmodified legacy YAML lands on shared cards of a real Kubernetes.

Every pod's outcome is checked against what legacy HAMi would have given it.
"""

import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from hami_dra.cli.table import table
from hami_dra.lab import demo_node, webhook
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.failure import LabError
from hami_dra.lab.scene import scene
from hami_dra.lab.shares import Share, read_shares, tenants
from hami_dra.lab.wait import until
from hami_dra.migration import Json, record
from hami_dra.migration.quantity import parse

NODES: Final[Mapping[str, Mapping[str, int]]] = {
    "node-a100": {"a100-80g": 4},
    "node-l4": {"l4-24g": 2},
}
"""The demo's nodes and their cards."""

REAL: Final = "node-a100"
"""The node that runs its pods, where there can be one."""

_WHOLE: Final = 100
_IMAGE: Final = re.compile(r"^\s*image: (\S+)", re.MULTILINE)
_USE_UUID: Final = "nvidia.com/use-gpuuuid"
_COLUMNS: Final = ("POD", "ASKED FOR", "NODE", "CARD", "MODEL", "MEMORY", "CORES", "TENANTS")
_SHOWN: Final = "hami_vgpu_memory_limit_bytes"
_SEEN: Final = ("POD", "ITS CONTAINER SEES", "WHAT IT MAY USE")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What legacy HAMi gave each pod of one example.

    Attributes:
        pods: how many pods there are.
        cores: of each card, in percent.
        memory_mib: of each card; None for all of it.
        cards: how many different cards a pod gets.
        model: part of the cards' model.
    """

    pods: int
    cores: int
    memory_mib: int | None = None
    cards: int = 1
    model: str = ""


EXAMPLES: Final[Mapping[str, Wanted]] = {
    "inference": Wanted(pods=3, memory_mib=8000, cores=30),
    "notebook": Wanted(pods=1, memory_mib=4000, cores=0),
    "pinned-by-type": Wanted(pods=1, memory_mib=6000, cores=25, model="L4"),
    "pinned-by-uuid": Wanted(pods=1, memory_mib=10000, cores=0),
    "training": Wanted(pods=1, cores=_WHOLE),
    "two-cards": Wanted(pods=1, memory_mib=5000, cores=20, cards=2),
}
"""What should become of manifests/examples, by the label `app` of the pods."""

_PODS: Final = sum(wanted.pods for wanted in EXAMPLES.values())


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running, with simulated nodes only.")
    ] = False,
) -> None:
    """Show legacy GPU manifests run unchanged on DRA, on a real control plane of this host.

    With root, the pods of one node run; the other one, or both, are simulated.
    """
    clock = _Clock()
    simulated = {name: cards for name, cards in NODES.items() if name != REAL or keep}
    with (
        scene(simulated, say=clock.say) as shown,
        nullcontext() if keep else demo_node.node(shown, REAL, NODES[REAL], clock.say) as real,
    ):
        examples = webhook.manifests() / "examples"
        if real:
            demo_node.have_images(real, images(examples))
            monitor = demo_node.start_monitor(real, NODES[REAL])
            clock.say(f"{REAL} shows what its cards are used for: {monitor}")
        clock.say("applying manifests/examples, unmodified")
        shown.cluster.kubectl("apply", "-f", str(examples))
        clock.say(f"waiting until all {_PODS} pods are scheduled")
        pods = _await_scheduled(shown.api)
        shares = read_shares(shown.api, "default")
        print(f"\n{table([_COLUMNS, *_rows(pods, shares)], gap='  ')}", flush=True)
        if real:
            rows = [_seen_row(shown.cluster, pod) for pod in pods if _is_on(pod, REAL)]
            print(table([_SEEN, *rows], gap="  "), flush=True)
            limits = demo_node.shown(monitor, _SHOWN)
            print("\n".join((f"{monitor}/metrics", *limits)), end="\n\n", flush=True)
        clock.say("done")
        wrong = list(differences(pods, shares))
        if keep:
            _keep(shown.cluster)
    if wrong:
        raise LabError("not as legacy HAMi would have it:\n  " + "\n  ".join(wrong))
    print(f"All {_PODS} pods hold what legacy HAMi would have given them.")


class _Clock:
    """Says what is being done, and when since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._start:5.1f} s] {text}", file=sys.stderr, flush=True)


def _await_scheduled(api: Api) -> list[Json]:
    """Return the examples' pods once each has a node."""

    def scheduled() -> list[Json] | None:
        pods = api.list("pods", namespace="default")
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        return bound if len(bound) >= _PODS else None

    try:
        return until(scheduled, what=f"{_PODS} pods are scheduled")
    except TimeoutError as error:
        raise LabError(f"{error}\n{_reasons(api)}") from error


def _reasons(api: Api) -> str:
    """Return what the scheduler says of the pods that wait."""
    lines = [
        f"{pod['metadata']['name']}: {condition.get('message')}"
        for pod in api.list("pods", namespace="default")
        for condition in (pod.get("status") or {}).get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] != "True"
    ]
    return "\n".join(lines) or "no pod waits; fewer were created than expected"


def differences(pods: Sequence[Json], shares: Sequence[Share]) -> Iterator[str]:
    """Say where the outcome differs from legacy's, one line for each difference."""
    for app, wanted in EXAMPLES.items():
        found = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == app]
        if len(found) != wanted.pods:
            yield f"{app}: found {len(found)} pods, expected {wanted.pods}"
        for pod in found:
            yield from _pod_differences(pod, wanted, shares)


def _pod_differences(pod: Json, wanted: Wanted, shares: Sequence[Share]) -> Iterator[str]:
    name = pod["metadata"]["name"]
    held = [share for share in shares if share.pod == name]
    if len({share.uuid for share in held}) != wanted.cards or len(held) != wanted.cards:
        yield f"{name}: found shares of {[s.device for s in held]}, expected {wanted.cards} cards"
    named = pod["metadata"].get("annotations", {}).get(_USE_UUID)
    for share in held:
        if wanted.memory_mib is not None and share.memory_mib != wanted.memory_mib:
            yield f"{name}: found {share.memory_mib} MiB, expected {wanted.memory_mib}"
        if share.cores != wanted.cores:
            yield f"{name}: found {share.cores} cores, expected {wanted.cores}"
        if wanted.model not in share.product:
            yield f"{name}: found a {share.product}, expected one with {wanted.model} in its name"
        if named and share.uuid != named:
            yield f"{name}: found card {share.uuid}, expected {named}"
        if wanted.cores == _WHOLE and tenants(shares)[share.uuid] != 1:
            yield f"{name}: found others on card {share.uuid}, expected to be alone"


def _rows(pods: Sequence[Json], shares: Sequence[Share]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each share, with what its pod asked for in legacy words."""
    asked = {pod["metadata"]["name"]: _legacy_words(pod) for pod in pods}
    crowd = tenants(shares)
    for share in shares:
        yield (
            share.pod,
            asked.get(share.pod, ""),
            share.node,
            share.uuid[: len("GPU-") + 8],
            share.product,
            f"{share.memory_mib} MiB",
            f"{share.cores} %" if share.cores else "no limit",
            str(crowd[share.uuid]),
        )


def _legacy_words(pod: Json) -> str:
    """Return the resources that a pod's author wrote, without their common domain."""
    amounts = (
        f"{name.partition('/')[2]}={parse(amount).canonical}"
        for converted in record.read(pod).containers.values()
        for name, amount in converted.limits.items()
    )
    choices = (
        f"{name.partition('/')[2]}={value[:12]}"
        for name, value in pod["metadata"].get("annotations", {}).items()
        if name.startswith("nvidia.com/")
    )
    return " ".join((*amounts, *choices))


def images(examples: Path) -> set[str]:
    """Name the images that the examples run."""
    return {name for file in examples.glob("*.yaml") for name in _IMAGE.findall(file.read_text())}


def _is_on(pod: Json, node: str) -> bool:
    return bool(pod["spec"]["nodeName"] == node)


def _seen_row(cluster: Cluster, pod: Json) -> tuple[str, ...]:
    name: str = pod["metadata"]["name"]
    return (name, *demo_node.seen(cluster, name))


def _keep(cluster: Cluster) -> None:
    """Leave the cluster running and say how to use and to stop it."""
    cluster.detach()
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    print(f"stop it with: make demo-stop DIR={shlex.quote(str(cluster.directory))}\n", flush=True)
