"""What tests do on the real node, and how they look at it."""

import base64
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hami_dra.lab import webhook
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.realnode import AGENT, IMAGE, RealNode, real_node
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.node.limits import CONTROL_BYTES, Control, decode_control
from hami_dra.node.simulated import cards
from tests import versions
from tests.hami_dra.node.cdi_validator import validate_all
from tests.native.conftest import build
from tests.versions import Kubernetes

PROFILE = "a100-80g"
COUNT = 3
NAMESPACE = "default"

# What a container of a legacy workload finds: its variables, and each claim's limits.
TELL = (
    "env | grep CUDA_; for c in /run/vgpu/claims/*; do"
    " echo CONTROL $(head -c 6208 $c/control | base64 -w0);"
    " (echo x >> $c/control) 2>/dev/null && echo WRITABLE; touch $c/usage && echo USAGE; done;"
    " (echo x >> /etc/ld.so.preload) 2>/dev/null && echo WRITABLE;"
    " grep -q /usr/local/vgpu/libvgpu.so /proc/self/maps && echo PRELOADED; echo END"
)
STAY = f"{TELL}; exec sleep 1000000"

_DRIVER = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
typedef unsigned long long address;
int cuInit(unsigned), cuDeviceGet(int*, int), cuDeviceGetCount(int*);
int cuCtxCreate_v2(void**, unsigned, int), cuMemAlloc_v2(address*, size_t);
"""
_ASK = """
int main(void) { printf("cuInit %d\\nEND\\n", cuInit(0)); return 0; }
"""


@dataclass(frozen=True)
class Told:
    """What a container found.

    Attributes:
        variables: its CUDA variables.
        controls: the limits of each claim.
        text: all that it wrote.
    """

    variables: Mapping[str, str]
    controls: tuple[Control, ...]
    text: str

    @property
    def memory_mib(self) -> dict[str, int]:
        """Return the memory limits by card."""
        return {
            device.uuid: (device.memory_bytes or 0) // 2**20
            for control in self.controls
            for device in control.devices
        }


class Bed:
    """A cluster with one real node."""

    def __init__(self, cluster: Cluster, api: Api, node: RealNode) -> None:
        self.cluster = cluster
        self.api = api
        self.node = node
        self.cards = cards(PROFILE, COUNT, node.name)
        self.marks: dict[str, int] = {}

    def claims_of_pods(self) -> list[Json]:
        """Return the claims that were made for pods."""
        found = self.api.list("resourceclaims", namespace=NAMESPACE)
        return [each for each in found if each["metadata"].get("ownerReferences")]

    @property
    def kubernetes(self) -> Kubernetes:
        """The cluster's version, which is the kubelet's too."""
        return versions.of(self.cluster.version)

    def start_agent(self, *more: str, name: str = AGENT) -> None:
        """Start an agent and wait until its cards are published and the kubelet has it."""
        process = self.node.start_agent(*agent_arguments(), *more, name=name)
        mark = self.marks.get(name, 0)
        self.await_slice()
        until(
            lambda: "the kubelet registered the plugin" in process.log.read_text()[mark:],
            what="the kubelet registered the agent",
        )

    def stop_agent(self, *, name: str = AGENT, kill: bool = False) -> None:
        """End an agent, in order or suddenly."""
        process = self.node.processes[name]
        if kill:
            os.kill(process.pid, signal.SIGKILL)
        self.node.stop(name)
        self.marks[name] = len(process.log.read_text())

    def stop_agents(self) -> None:
        """End every agent that still runs."""
        for name in [each for each in self.node.processes if each.startswith(AGENT)]:
            self.stop_agent(name=name)

    def slice(self) -> Json | None:
        """Return the node's slice."""
        query = {"fieldSelector": f"spec.nodeName={self.node.name}"}
        found = self.api.list("resourceslices", query=query)
        return found[0] if found else None

    def await_slice(self) -> Json:
        """Wait until the node has a slice."""
        return until(self.slice, what="the slice is published", every_s=0.02)

    def files(self) -> list[str]:
        """Return the names of all files of claims on the node."""
        claims = self.node.layout.run / "claims"
        # An agent that ends without claims takes their folder along.
        folders = [each for each in (self.node.layout.cdi, claims) if each.is_dir()]
        return [path.name for folder in folders for path in folder.iterdir()]

    def apply(self, document: Json, resource: str = "pods") -> None:
        """Create an object in the tests' namespace."""
        self.api.create(resource, document, namespace=NAMESPACE)

    def pod(self, name: str) -> Json:
        """Return a pod."""
        return self.api.get("pods", name, namespace=NAMESPACE)

    def await_running(self, name: str) -> Json:
        """Wait until all containers of a pod run."""

        def is_running() -> Json | None:
            pod = self.api.find("pods", name, namespace=NAMESPACE) or {}
            conditions = (pod.get("status") or {}).get("conditions") or ()
            ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
            return pod if ready else None

        return until(is_running, what=f"{name} runs")

    def await_refused(self, name: str) -> None:
        """Wait until the scheduler has found no place for a pod."""

        def is_refused() -> bool:
            conditions = (self.pod(name).get("status") or {}).get("conditions") or ()
            return any(
                "cannot allocate all claims" in each.get("message", "") for each in conditions
            )

        until(is_refused, what=f"{name} is found unschedulable")

    def events(self, name: str) -> str:
        """Return what the events of a pod say."""
        arguments = ("get", "events", "--field-selector", f"involvedObject.name={name}")
        columns = "custom-columns=R:.reason,M:.message"
        return self.cluster.kubectl(*arguments, "-o", columns).stdout

    def told(self, pod: str, container: str = "main") -> Told:
        """Wait until a container has told what it found, and return that."""

        def text() -> str | None:
            done = self.cluster.kubectl("logs", pod, "-c", container, check=False)
            return done.stdout if done.returncode == 0 and "END\n" in done.stdout else None

        said = until(text, what=f"{pod}/{container} has told what it found")
        validate_all(self.node.layout.cdi, root=self.node.root)
        lines = said.splitlines()
        pairs = (line.partition("=") for line in lines if line.startswith("CUDA_"))
        return Told(
            variables={name: value for name, _, value in pairs},
            controls=tuple(
                decode_control(_whole(line.removeprefix("CONTROL ")))
                for line in lines
                if line.startswith("CONTROL ")
            ),
            text=said,
        )

    def delete_pods(self) -> None:
        """Delete all pods and what makes them, and wait until they are gone."""
        for resource in ("deployments", "replicasets"):
            self.api.delete_all(resource, NAMESPACE)
        for pod in self.api.list("pods", namespace=NAMESPACE):
            self.api.delete("pods", pod["metadata"]["name"], namespace=NAMESPACE, wait=False)
        until(lambda: not self.api.list("pods", namespace=NAMESPACE), what="no pod is left")
        # They follow their pods, after a moment; claims that a test wrote are its own to delete.
        until(lambda: not self.claims_of_pods(), what="no claim of a pod is left")


@contextmanager
def a_bare_bed(version: str | None = None) -> Iterator[Bed]:
    """Start a cluster with one real node and nothing of ours, and take it down again."""
    with (
        Cluster.start(version=version) as cluster,
        Api(cluster.kubeconfig) as api,
        real_node(cluster, api) as node,
    ):
        yield Bed(cluster, api, node)


@contextmanager
def at_work(bed: Bed, *arguments: str) -> Iterator[None]:
    """Have the webhook and an agent as processes of the host.

    Args:
        bed: where.
        *arguments: of the agent, beyond those of every test.
    """
    webhook.install(bed.cluster)
    running = webhook.start(bed.cluster)
    try:
        webhook.register(bed.api, running)
        webhook.register_guard(bed.api)
        bed.start_agent(*arguments)
        webhook.await_registered(bed.api, "default")
        yield
    finally:
        webhook.unregister_guard(bed.api)
        webhook.unregister(bed.api)
        running.process.stop()
        bed.stop_agents()
        # They stay for whoever needs them next, which nobody does here.
        bed.api.delete_all("resourceclaimtemplates", NAMESPACE)


def agent_arguments() -> list[str]:
    """Return the settings of the bed's agents."""
    return ["--profile", PROFILE, "--count", str(COUNT), "--library", str(build().shipped)]


def _whole(text: str) -> bytes:
    """Return a control file of which a container told the limits, and not the long rest."""
    return base64.b64decode(text).ljust(CONTROL_BYTES, b"\0")


def container(name: str = "main", command: str = STAY, **limits: str) -> Json:
    """Write a container in legacy words; `gpumem` means `nvidia.com/gpumem`."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", command],
        "resources": {"limits": {f"nvidia.com/{key}": value for key, value in limits.items()}},
    }


def deployment(name: str, replicas: int, *containers: Json) -> Json:
    """Write a Deployment of the tests."""
    template = pod(name, *containers)
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


def pod(name: str, *containers: Json, init: Sequence[Json] = (), **more: object) -> Json:
    """Write a pod of the tests."""
    spec = {
        "terminationGracePeriodSeconds": 0,
        "containers": list(containers),
        "initContainers": list(init),
        **more,
    }
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def computing(bed: Bed, name: str, program: str, *, uuids: str = "", **limits: str) -> Json:
    """Write a pod that runs a C program on the fake driver.

    Args:
        bed: where.
        name: of the pod and of the program.
        program: its text; what it calls of the driver is declared.
        uuids: of the fake driver's cards, with commas between; empty for its own.
        **limits: in legacy words.
    """
    folder = bed.cluster.directory / "driver"
    built = build()
    shutil.copytree(built.fake, folder, dirs_exist_ok=True)
    built.compile(folder / name, _DRIVER + program, f"-L{folder}", "-l:libcuda.so.1")
    asking = container(command=f"exec /driver/{name} 2>&1", **limits)
    asking["volumeMounts"] = [{"name": "driver", "mountPath": "/driver"}]
    variables = {"LD_LIBRARY_PATH": "/driver", "VGPU_FAKE_STATE": f"/driver/{name}.state"}
    if uuids:
        count = str(len(uuids.split(",")))
        variables |= {"VGPU_FAKE_UUIDS": uuids, "VGPU_FAKE_DEVICES": count}
    asking["env"] = [{"name": key, "value": value} for key, value in variables.items()]
    volume = {"name": "driver", "hostPath": {"path": str(folder)}}
    return pod(name, asking, volumes=[volume], restartPolicy="Never")


def assert_limits_meet_programs(bed: Bed) -> None:
    """Run a program that computes, and see that the native library read its claim's limits.

    The fake driver's cards are not the node's, which it can only say once it has read them.
    """
    bed.apply(computing(bed, "computes", _ASK, gpu="1", gpumem="1000"))

    said = bed.told("computes").text
    assert "cuInit 0" in said
    assert "found limits, but for none of the 2 GPUs" in said
