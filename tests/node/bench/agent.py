"""What the agent's own calls cost: the calls come from a program in Go, the API server is real.

The agent runs as its pod would: with the service account, policy and directories that are shipped,
files of claims and of the runtime in memory as `/run` is on any host, its checkpoint on the disk.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hami_dra.kube.session import Session
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.process import Process
from hami_dra.migration.names import DRIVER
from hami_dra.node.devices import device_name
from hami_dra.node.messages import ClaimReference
from hami_dra.node.simulated import cards
from tests.hami_dra.node.fake_kubelet import FakeKubelet, RegisteredPlugin
from tests.node import account
from tests.node.bench import programs

CLAIMS = 200
PARALLEL = 8
ROUNDS = 5
CALLS = (
    ("empty call", "empty"),
    ("prepare", "prepare"),
    ("repeated prepare", "prepare"),
    ("unprepare", "unprepare"),
    ("repeated unprepare", "unprepare"),
    ("reading a claim, without a driver", "read"),
)
CARDS = 20
NODE = "bench"
_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system in memory, not a secret's place
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@dataclass(frozen=True)
class Subject:
    """What is measured.

    Attributes:
        driver: name of the DRA driver.
        device: names a device by its number.
        amounts: what a claim of it is charged.
        argv: calls it, given the kubelet's directory and one in memory.
    """

    driver: str
    device: Callable[[int], str]
    amounts: Mapping[str, str]
    argv: Callable[["Bench"], list[str]]


@dataclass
class Bench:
    """A cluster, a node's directories and what is measured."""

    subject: Subject
    cluster: Cluster
    session: Session
    account: Mapping[str, str]
    memory: Path

    @property
    def root(self) -> Path:
        """Where the kubelet's directories are."""
        return self.cluster.directory / "b"

    def start(self) -> Process:
        """Start what is measured."""
        return self.cluster.start_process("agent", self.subject.argv(self), self.account)

    async def until_slice(self) -> None:
        """Wait until the API server has the node's slice."""
        query = {"fieldSelector": f"spec.nodeName={NODE}"}
        path = "/apis/resource.k8s.io/v1/resourceslices"
        while True:
            found = await self.session.get(path, query=query)
            if found["items"]:
                return
            await asyncio.sleep(0.01)

    async def until_registered(self) -> None:
        """Wait until the agent answers a registering kubelet."""
        kubelet = FakeKubelet(self.root / "plugins_registry")
        while True:
            try:
                async with kubelet.registered():
                    return
            except Exception:  # noqa: BLE001 - not there yet
                await asyncio.sleep(0.01)

    async def claim(self, number: int) -> ClaimReference:
        """Create a claim and allocate it."""
        exactly = {"deviceClassName": self.subject.driver}
        body = {
            "metadata": {"name": f"c{number}"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        made = await self.session.create(_CLAIMS, body)
        result = {
            "request": "gpu",
            "driver": self.subject.driver,
            "pool": NODE,
            "device": self.subject.device(number % CARDS),
            "consumedCapacity": self.subject.amounts,
            "shareID": made["metadata"]["uid"],
        }
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await self.session.patch(f"{_CLAIMS}/c{number}/status", status)
        return ClaimReference("default", made["metadata"]["uid"], f"c{number}")


@dataclass(frozen=True)
class Caller:
    """Calls a driver as the kubelet does, which is written in Go too.

    Attributes:
        process: the program.
        claims: what it calls for, as it wants them.
    """

    process: asyncio.subprocess.Process
    claims: str

    async def took(self, method: str) -> list[float]:
        """Call for every claim, some at a time; return what each call took, in milliseconds."""
        entrance, exit_ = self.process.stdin, self.process.stdout
        assert entrance is not None
        assert exit_ is not None
        entrance.write(f"{method} {self.claims}\n".encode())
        answer = (await exit_.readline()).split()
        assert answer, "a call failed"
        return [int(each) / 1e3 for each in answer]


@contextlib.asynccontextmanager
async def calling(
    bench: Bench, plugin: RegisteredPlugin, claims: Sequence[ClaimReference]
) -> AsyncIterator[Caller]:
    """Start the program that calls a driver for these claims."""
    host, port = (bench.account[f"KUBERNETES_SERVICE_{each}"] for each in ("HOST", "PORT"))
    process = await asyncio.create_subprocess_exec(
        programs.kubelet(),
        plugin.information.endpoint,
        *(bench.account["HAMI_DRA_NODE_ACCOUNT"], f"{host}:{port}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**20,
    )
    try:
        yield Caller(
            process, " ".join(f"{each.namespace}/{each.name}/{each.uid}" for each in claims)
        )
    finally:
        process.kill()
        await process.wait()


def tell(title: str, rounds: Sequence[Sequence[float]]) -> None:
    """Print how long calls took: the medians of the rounds' medians and of their 99 % marks."""
    middle, late = (
        statistics.median(sorted(each)[len(each) * part // 100] for each in rounds)
        for part in (50, 99)
    )
    print(f"{title:<34} p50 {middle:6.1f} ms   p99 {late:6.1f} ms")


async def calls(bench: Bench, plugin: RegisteredPlugin) -> None:
    """Measure the kubelet's calls, some rounds of each kind in turns."""
    claims = [await bench.claim(number) for number in range(CLAIMS)]
    found: dict[str, list[list[float]]] = {}
    async with calling(bench, plugin, claims) as caller:
        for _ in range(ROUNDS):
            for title, method in CALLS:
                found.setdefault(title, []).append(await caller.took(method))
    for title, rounds in found.items():
        tell(title, rounds)


def usage(pid: int) -> tuple[float, float]:
    """Return a process's CPU seconds, to the nanosecond and not by ticks, and resident MiB."""
    ran = sum(
        int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return ran / 1e9, int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def idle(process: Process, seconds: float) -> None:
    """Measure what an agent takes that has nothing to do."""
    before, _ = usage(process.pid)
    await asyncio.sleep(seconds)
    after, resident = usage(process.pid)
    share = (after - before) / seconds * 100
    print(
        f"{f'idle for {seconds:.0f} s':<34} {share:6.2f} % of a core, {resident:.0f} MiB resident"
    )


async def starts(bench: Bench) -> Process:
    """Measure a first start and one after a sudden end."""
    started = time.perf_counter()
    process = bench.start()
    await bench.until_slice()
    print(f"{'first start to slice':<34} {time.perf_counter() - started:6.2f} s")
    await bench.until_registered()
    os.kill(process.pid, signal.SIGKILL)
    process.stop()
    started = time.perf_counter()
    process = bench.start()
    await bench.until_registered()
    print(f"{'killed to registered again':<34} {time.perf_counter() - started:6.2f} s")
    return process


def ours(bench: Bench) -> list[str]:
    """Call our agent."""
    return [
        *(sys.executable, "-m", "hami_dra.node", "run", "--name", NODE, "--devices", "simulated"),
        *("--count", str(CARDS), "--kubelet-directory", str(bench.root)),
        *("--cdi-directory", str(bench.memory / "cdi"), "--address", "127.0.0.1", "--port", "0"),
        *("--run-directory", str(bench.memory / "run"), "--log-level", "warning"),
    ]


def theirs(bench: Bench) -> list[str]:
    """Call the Kubernetes example driver, without the client limits that it has by default."""
    for name in ("plugins_registry", "plugins"):
        (bench.root / name).mkdir(parents=True, exist_ok=True)
    return [
        *(str(programs.example_driver()), f"--node-name={NODE}", f"--num-devices={CARDS}"),
        f"--kubelet-registrar-directory-path={bench.root / 'plugins_registry'}",
        f"--kubelet-plugins-directory-path={bench.root / 'plugins'}",
        *(f"--cdi-root={bench.memory / 'cdi'}", "--gpu-allow-multiple-allocations"),
        *("--kube-api-qps=100000", "--kube-api-burst=100000"),
        f"--kubeconfig={bench.cluster.kubeconfig}",
    ]


AGENT = Subject(
    driver=DRIVER,
    device=lambda number: device_name(cards("a100-80g", CARDS, NODE)[number].uuid),
    amounts={"memory": "1Gi", "cores": "5", "slots": "10"},
    argv=ours,
)
EXAMPLE = Subject(
    driver=programs.DRIVER,
    device=lambda number: f"gpu-{number}",
    amounts={"memory": "1Gi"},
    argv=theirs,
)


async def measure_calls(bench: Bench) -> None:
    """Measure starts and calls."""
    process = await starts(bench)
    async with FakeKubelet(bench.root / "plugins_registry").registered() as plugin:
        await calls(bench, plugin)
    _, resident = usage(process.pid)
    print(f"{'after all that':<34} {resident:6.0f} MiB resident")


async def measure_idle(bench: Bench, seconds: float) -> None:
    """Measure an agent that has published its cards and has nothing to do."""
    process = bench.start()
    await bench.until_slice()
    await bench.until_registered()
    recorded = bench.cluster.audit
    before = len(list(recorded.events()))
    await idle(process, seconds)
    user = f"system:serviceaccount:{account.NAME}:{account.NAME}"
    asked = [each for each in list(recorded.events())[before:] if each.user == user]
    writes = sum(each.is_write for each in asked)
    print(f"{'asked of the API server meanwhile':<34} {writes} writes, {len(asked)} calls in all")


def measure(idle_s: float) -> None:
    """Measure all of it; the idle part alone with an audit log, which slows every call."""
    _on_a_cluster(AGENT, measure_calls, audited=False)
    _on_a_cluster(AGENT, lambda bench: measure_idle(bench, idle_s), audited=True)


def measure_example() -> None:
    """Measure the Kubernetes example driver on the same bed."""
    _on_a_cluster(EXAMPLE, measure_calls, audited=False)


def _on_a_cluster(
    subject: Subject, part: Callable[[Bench], Coroutine[Any, Any, None]], *, audited: bool
) -> None:
    memory = Path(tempfile.mkdtemp(dir=_MEMORY))
    try:
        with Cluster.start(audited=audited) as cluster, Api(cluster.kubeconfig) as api:
            account.install(cluster)
            api.create("nodes", {"metadata": {"name": NODE}})
            variables = account.account(cluster, api, NODE)
            api.run(lambda session: part(Bench(subject, cluster, session, variables, memory)))
    finally:
        shutil.rmtree(memory)
