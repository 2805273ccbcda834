"""Measure the agent against a real API server: `make bench-node`.

The kubelet is the tests' fake one, so that nothing but the agent is measured; claims are real
objects with an allocation as the scheduler writes it. The time of an empty call stands beside.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hami_dra.kube.session import Session
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.process import Process
from hami_dra.migration.names import DRIVER
from hami_dra.node.devices import device_name
from hami_dra.node.messages import ClaimReference
from hami_dra.node.simulated import cards
from tests.hami_dra.node.fake_kubelet import FakeKubelet, RegisteredPlugin

CLAIMS = 200
PARALLEL = 8
CARDS = 20
NODE = "bench"
IDLE_S = 20.0
_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@dataclass
class Bench:
    """A cluster, a node's directories and an agent."""

    cluster: Cluster
    session: Session

    @property
    def root(self) -> Path:
        """Where the node's directories are."""
        return self.cluster.directory / "b"

    def start(self) -> Process:
        """Start the agent."""
        arguments = [
            *("--name", NODE, "--devices", "simulated", "--count", str(CARDS)),
            *("--kubelet-directory", str(self.root), "--cdi-directory", str(self.root / "cdi")),
            *("--run-directory", str(self.root / "run"), "--address", "127.0.0.1", "--port", "0"),
            *("--kubeconfig", str(self.cluster.kubeconfig), "--log-level", "warning"),
        ]
        return self.cluster.start_process(
            "agent", [sys.executable, "-m", "hami_dra.node", "run", *arguments]
        )

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
        device = device_name(cards("a100-80g", CARDS, NODE)[number % CARDS].uuid)
        exactly = {"deviceClassName": DRIVER}
        body = {
            "metadata": {"name": f"c{number}"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        }
        made = await self.session.create(_CLAIMS, body)
        amounts = {"memory": "1Gi", "cores": "5", "slots": "10"}
        result = {
            "request": "gpu",
            "driver": DRIVER,
            "pool": NODE,
            "device": device,
            "consumedCapacity": amounts,
            "shareID": made["metadata"]["uid"],
        }
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await self.session.patch(f"{_CLAIMS}/c{number}/status", status)
        return ClaimReference("default", made["metadata"]["uid"], f"c{number}")


async def timed(
    title: str, claims: Sequence[ClaimReference], call: Callable[[ClaimReference], Awaitable[str]]
) -> None:
    """Call for every claim, so many at a time, and print how long a call took."""
    waiting, taken = list(claims), list[float]()

    async def work() -> None:
        while waiting:
            claim = waiting.pop()
            started = time.perf_counter()
            assert (error := await call(claim)) == "", error
            taken.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(PARALLEL)))
    total = time.perf_counter() - started
    taken.sort()
    middle, late = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    rate = len(taken) / total
    print(f"{title:<34} p50 {middle * 1e3:6.1f} ms   p99 {late * 1e3:6.1f} ms   {rate:6.0f}/s")


async def calls(bench: Bench, plugin: RegisteredPlugin) -> None:
    """Measure the kubelet's calls."""
    claims = [await bench.claim(number) for number in range(CLAIMS)]

    async def nothing(_: ClaimReference) -> str:
        await plugin.prepare()
        return ""

    async def prepare(claim: ClaimReference) -> str:
        return (await plugin.prepare(claim))[claim.uid].error

    async def unprepare(claim: ClaimReference) -> str:
        return (await plugin.unprepare(claim))[claim.uid]

    await timed("empty call", claims, nothing)
    await timed("prepare", claims, prepare)
    await timed("repeated prepare", claims, prepare)
    await timed("unprepare", claims, unprepare)
    await timed("empty call", claims, nothing)


def usage(pid: int) -> tuple[float, int]:
    """Return a process's CPU seconds and resident MiB."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") // 2**20


async def main() -> None:
    """Measure and print."""
    with Cluster.start() as cluster:
        async with await Session.connect(cluster.kubeconfig) as session:
            await session.create("/api/v1/nodes", {"metadata": {"name": NODE}})
            bench = Bench(cluster, session)
            for title in ("first start to slice", "killed to registered again"):
                started = time.perf_counter()
                process = bench.start()
                await (bench.until_slice() if "slice" in title else bench.until_registered())
                print(f"{title:<34} {time.perf_counter() - started:6.2f} s")
                if "first" in title:
                    await bench.until_registered()
                    os.kill(process.pid, signal.SIGKILL)
                    process.stop()
            async with FakeKubelet(bench.root / "plugins_registry").registered() as plugin:
                await calls(bench, plugin)
                before, _ = usage(process.pid)
                await asyncio.sleep(IDLE_S)
                after, resident = usage(process.pid)
            share = (after - before) / IDLE_S * 100
            print(f"{'idle':<34} {share:6.2f} % of a core, {resident} MiB resident")


if __name__ == "__main__":
    asyncio.run(main())
