"""The demo's real node: its pods run, and show what their containers see. Needs root."""

import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from hami_dra.lab.cluster import Cluster
from hami_dra.lab.failure import LabError
from hami_dra.lab.image import write_image
from hami_dra.lab.nodes import add_node, remove_node
from hami_dra.lab.ports import LOOPBACK, free_port
from hami_dra.lab.realnode import RealNode, real_node, why_not
from hami_dra.lab.scene import Scene
from hami_dra.lab.wait import until

_MONITOR_PORT: Final = 31995  # as on a node of a cluster
_LIMITS: Final = ("CUDA_DEVICE_MEMORY_LIMIT_", "CUDA_DEVICE_SM_LIMIT_")
_END: Final = "END"
_TELL: Final = f"env | grep CUDA_; ls -d /run/vgpu/claims/*; echo {_END}; exec sleep 1000000"


@contextmanager
def node(
    scene: Scene, name: str, cards: Mapping[str, int], say: Callable[[str], None]
) -> Iterator[RealNode | None]:
    """Have a node that runs pods, or a simulated one and None where there cannot be one.

    Args:
        scene: the cluster.
        name: of the node.
        cards: how many cards of one profile it has.
        say: told what happens, and why there is only a simulated one.
    """
    with ExitStack() as stack:
        found = None
        reason = why_not()
        if not reason:
            say(f"starting containerd, kubelet and the agent of {name}")
            try:
                found = stack.enter_context(_running(scene, name, cards))
            except (LabError, OSError, TimeoutError) as error:
                reason = str(error).partition("\n")[0]
                if scene.api.find("nodes", name):
                    remove_node(scene.api, name)
        if reason:
            say(f"no pod is run, {name} is simulated too: {reason}")
            add_node(scene.api, name, cards)
        yield found


@contextmanager
def _running(scene: Scene, name: str, cards: Mapping[str, int]) -> Iterator[RealNode]:
    [(profile, count)] = cards.items()
    with real_node(scene.cluster, scene.api, name) as found:
        simulated = ("--profile", profile, "--count", str(count))
        found.start_agent(*simulated)
        query = {"fieldSelector": f"spec.nodeName={name}"}
        until(
            lambda: scene.api.list("resourceslices", query=query) or None,
            what=f"the cards of {name} are published",
        )
        yield found


def start_monitor(found: RealNode, cards: Mapping[str, int]) -> str:
    """Start the monitor of a node; return where it shows."""
    port = free_port(_MONITOR_PORT)
    [(profile, count)] = cards.items()
    found.start_monitor(port, "--profile", profile, "--count", str(count))
    return f"http://{LOOPBACK}:{port}"


def shown(url: str, name: str) -> list[str]:
    """Return the series of one metric, as the monitor at an address shows them."""

    def scraped() -> list[str]:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310 - ours
            text: str = answer.read().decode()
        return [line for line in text.splitlines() if line.startswith(f"{name}{{")]

    return until(scraped, what=f"{url} shows {name}", tolerate=(OSError,))


def have_images(found: RealNode, names: Collection[str]) -> None:
    """Have images of these names whose program tells what it sees, as if they had been pulled."""
    archive = found.layout.directory / "demo.tar"
    for name in sorted(names):
        write_image(archive, name, command=("/bin/sh", "-c", _TELL))
        found.import_image(archive)


def seen(cluster: Cluster, pod: str) -> tuple[str, str]:
    """Wait until a pod's container has told what it sees: its limits, and its claims' folders."""

    def said() -> list[str] | None:
        done = cluster.kubectl("logs", pod, check=False)
        lines = done.stdout.splitlines()
        return lines[:-1] if lines[-1:] == [_END] else None

    lines = until(said, what=f"{pod} runs and tells what it sees")
    limits = sorted(line for line in lines if line.startswith(_LIMITS))
    return " ".join(limits), " ".join(line for line in lines if "=" not in line)
