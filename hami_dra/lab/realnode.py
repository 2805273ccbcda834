"""One real node beside a lab's control plane: a kubelet and a containerd that run real pods.

They live in a mount namespace of their own, so their mounts vanish with them. Needs root.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hami_dra.lab import build, nodeconfig, pki
from hami_dra.lab.api import Api
from hami_dra.lab.balancer import Balancer
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.containerd import Runtime, runtime
from hami_dra.lab.controlplane import feature_gates
from hami_dra.lab.failure import LabError
from hami_dra.lab.image import write_image
from hami_dra.lab.lock import is_locked, locked
from hami_dra.lab.nodeconfig import NodeLayout
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.process import Process
from hami_dra.lab.wait import until

IMAGE: Final = "hami-dra.io/probe:1"
"""The image of every pod: a shell and a few programs."""

CONTAINERD: Final = "containerd"
KUBELET: Final = "real-kubelet"
AGENT: Final = "agent"
MONITOR: Final = "monitor"
_NAMESPACE: Final = "namespace"

# The path of the device plugins' socket is a constant of the kubelet.
_CONSTANT: Final = Path("/var/lib/kubelet")
_HTTPS: Final = 443
_CGROUPS: Final = Path("/sys/fs/cgroup")
# What the kubelet and the network of pods set for the whole machine.
_KERNEL: Final = tuple(
    Path("/proc/sys") / name
    for name in (
        *("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"),
        "net/ipv4/ip_forward",
    )
)


# Nodes share addresses and control groups of the host, so there is one at a time.
# Of the host and not of a user's cache: what it guards, addresses and paths, are the host's.
_LOCK: Final = Path("/run/hami-dra-lab/real-node.lock")


def why_not() -> str | None:
    """Return why this machine cannot have a real node, or None."""
    if os.geteuid() != 0:
        return "a real node needs root"
    if not is_locked(_LOCK) and _processes_of_pods():
        return "another kubelet runs pods on this host, and two would remove each other's"
    return None


class RealNode:
    """A node that runs pods.

    Args:
        cluster: where it belongs.
        name: of its Node object.

    Attributes:
        layout: where everything of it lies.
        processes: what runs, by name.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.layout = NodeLayout(cluster.directory / "n")
        self.processes: dict[str, Process] = {}
        self._runtime: Runtime = runtime()

    @property
    def root(self) -> Path:
        """The node's file system, as seen from outside of its namespace."""
        return Path(f"/proc/{self.processes[_NAMESPACE].pid}/root")

    def start(self, name: str, argv: Sequence[str]) -> Process:
        """Start a program on the node."""
        process = self.cluster.start_process(name, [*self._enter(), *argv], self._environment())
        self.processes[name] = process
        return process

    def stop(self, name: str) -> None:
        """Stop a program of the node."""
        self.processes.pop(name).stop()

    def start_containerd(self) -> None:
        """Start containerd and return when it answers."""
        config = str(self.layout.containerd_config)
        process = self.start(CONTAINERD, [str(self._runtime.program(CONTAINERD)), "-c", config])

        def answers() -> bool:
            process.check()
            return self.ctr("version").returncode == 0

        until(answers, what="containerd answers")

    def start_kubelet(self) -> None:
        """Start the kubelet."""
        program = build.assets(self.cluster.version).directory / "kubelet"
        arguments = [
            f"--config={self.layout.kubelet_config}",
            f"--kubeconfig={self.layout.kubeconfig}",
            f"--hostname-override={self.name}",
            f"--root-dir={self.layout.kubelet}",
        ]
        self.start(KUBELET, [str(program), *arguments])

    def start_agent(
        self, *arguments: str, kubeconfig: Path | None = None, name: str = AGENT
    ) -> Process:
        """Start the product's agent on the node, with simulated cards."""
        given = [
            *("--name", self.name, "--devices", "simulated"),
            *("--kubeconfig", str(kubeconfig or self.cluster.kubeconfig)),
            *("--address", "127.0.0.1", "--port", "0", "--log-format", "text"),
        ]
        return self.start(name, [sys.executable, "-m", "hami_dra.node", "run", *given, *arguments])

    def start_monitor(self, port: int, *arguments: str) -> Process:
        """Start the product's monitor on the node, on the loopback of the host."""
        given = [
            *("--name", self.name, "--devices", "simulated", "--log-format", "text"),
            *("--address", LOOPBACK, "--port", str(port)),
        ]
        return self.start(MONITOR, [sys.executable, "-m", "hami_dra.monitor", *given, *arguments])

    def await_ready(self, api: Api) -> None:
        """Wait until the kubelet says that the node is ready, and let pods on it."""

        def is_ready() -> bool:
            self.processes[KUBELET].check()
            node = api.find("nodes", self.name) or {}
            conditions = (node.get("status") or {}).get("conditions") or ()
            return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

        until(is_ready, what=f"node {self.name} is ready")
        # The controller that would do it needs all nodes to have kubelets.
        api.patch("nodes", self.name, {"spec": {"taints": None}})

    def ctr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run containerd's command line."""
        ctr = [str(self._runtime.program("ctr")), "--address", str(self.layout.socket)]
        argv = [*self._enter(), *ctr, "--namespace", "k8s.io", *arguments]
        environment = {**os.environ, **self._environment()}
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    def furnish(self) -> None:
        """Make the node's directories, configuration and namespace, and start containerd."""
        layout = self.layout
        for path in (layout.directory, layout.kubelet, layout.cdi, layout.run, layout.networks):
            path.mkdir()
        self._write_identity()
        sandbox = nodeconfig.containerd_config(
            layout, programs=self._runtime.directory, sandbox=IMAGE
        )
        layout.containerd_config.write_text(sandbox)
        network = nodeconfig.text(nodeconfig.network_config(layout))
        (layout.networks / "10-lab.conflist").write_text(network)
        self._start_namespace()
        self.start_containerd()
        archive = layout.directory / "image.tar"
        write_image(archive, IMAGE)
        self.import_image(archive)

    def import_image(self, archive: Path) -> None:
        """Have an image as if it had been pulled."""
        done = self.ctr("images", "import", str(archive))
        if done.returncode:
            raise LabError(f"ctr images import: {done.stderr}")

    def _write_identity(self) -> None:
        layout, issuer = self.layout, self.cluster.issuer
        [port] = free_ports(1)
        config = nodeconfig.kubelet_config(
            layout,
            authority=self.cluster.directory / "pki" / "ca.crt",
            port=port,
            gates=feature_gates(self.cluster.version),
        )
        layout.kubelet_config.write_text(nodeconfig.text(config))
        serving = issuer.server(self.name, self.name, ip_addresses=(_own_address(),))
        (layout.directory / "kubelet.crt").write_bytes(serving.certificate_pem)
        (layout.directory / "kubelet.key").write_bytes(serving.key_pem)
        client = issuer.client(f"system:node:{self.name}", "system:nodes")
        content = pki.kubeconfig(self.cluster.server, self.cluster.ca_pem, client)
        pki.write_kubeconfig(layout.kubeconfig, content)

    def _start_namespace(self) -> None:
        """Keep a mount namespace in which the node's directories are where every node has them.

        What runs in pods finds them there. Whatever else containerd leaves in /run goes with it.
        """
        _CONSTANT.mkdir(parents=True, exist_ok=True)
        layout = self.layout
        places = {
            _CONSTANT: layout.kubelet,
            Path("/var/run/cdi"): layout.cdi,
            Path("/run/hami-dra"): layout.run,
        }
        script = "mount --make-rshared /; mount -t tmpfs tmpfs /run"
        for place, directory in places.items():
            script += f"; mkdir -p {place}; mount --bind {directory} {place}"
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-ec"]
        process = self.cluster.start_process(
            _NAMESPACE, [*argv, f"{script}; echo ready; exec sleep infinity"]
        )

        def is_made() -> bool:
            process.check()
            return "ready" in process.log.read_text()

        until(is_made, what="the node's mount namespace is made")
        self.processes[_NAMESPACE] = process

    def _enter(self) -> list[str]:
        return ["nsenter", f"--mount=/proc/{self.processes[_NAMESPACE].pid}/ns/mnt"]

    def _environment(self) -> Mapping[str, str]:
        return {"PATH": f"{self._runtime.directory}:{os.environ['PATH']}"}


@contextmanager
def real_node(cluster: Cluster, api: Api, name: str = "real") -> Iterator[RealNode]:
    """Add a real node to a cluster and take it away again; wait while the host has another one.

    Raises:
        LabError: if this machine cannot have one.
    """
    if reason := why_not():
        raise LabError(reason)
    waiting = "waiting for the real node of another process"
    with locked(_LOCK, waiting), _kernel_settings(), _api_service(cluster):
        node = RealNode(cluster, name)
        try:
            node.furnish()
            node.start_kubelet()
            node.await_ready(api)
            yield node
        finally:
            for process in reversed(node.processes.values()):
                process.stop()
            _remove_pods()


@contextmanager
def _api_service(cluster: Cluster) -> Iterator[None]:
    """Bring what pods send to the API server's Service to the API server."""
    port = urlsplit(cluster.server).port
    assert port is not None  # noqa: S101 - the lab chose one
    with Balancer(pki.API_SERVICE, _HTTPS).serving() as service:
        service.add(port)
        yield


@contextmanager
def _kernel_settings() -> Iterator[None]:
    """Put back what was set for the whole machine."""
    before = {path: path.read_text() for path in _KERNEL}
    try:
        yield
    finally:
        for path, value in before.items():
            path.write_text(value)


def _groups_of_pods() -> list[Path]:
    """Find the control groups under which kubelets keep pods, in every hierarchy."""
    return [path for path in (_CGROUPS / "kubepods", *_CGROUPS.glob("*/kubepods")) if path.is_dir()]


def _processes_of_pods() -> set[int]:
    """Return the processes of all pods on this host."""
    found: set[int] = set()
    for group in _groups_of_pods():
        for path in group.rglob("cgroup.procs"):
            # A group may go while it is looked at.
            with contextlib.suppress(OSError):
                found.update(int(line) for line in path.read_text().split())
    return found


def _remove_pods() -> None:
    """End what the node's pods still run, and remove their control groups.

    All of it is the node's: it would not have started beside the pods of another kubelet.
    """
    for pid in _processes_of_pods():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not _processes_of_pods(), what="the node's pods have ended")
    for group in _groups_of_pods():
        for path in sorted(group.glob("**/"), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir()


def _own_address() -> str:
    """Return the address that the kubelet will find for this host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        # Nothing is sent; the kernel only chooses a route.
        line.connect(("192.0.2.1", 9))
        return str(line.getsockname()[0])
