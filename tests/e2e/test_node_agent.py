"""The agent beside a real API server, which changes its mind and wants to be left in peace."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest

from hami_dra.kube.slices import dropped_fields, is_same
from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.controlplane import API_SERVER
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from hami_dra.migration.names import DRIVER
from hami_dra.node.devices import resource_slice
from hami_dra.node.simulated import cards
from tests.hami_dra.node.fake_kubelet import FakeKubelet
from tests.node import account

pytestmark = pytest.mark.cluster

NODE = "alone"
GATE = "DRAConsumableCapacity"


@dataclass
class Site:
    """A cluster, an agent with the identity that is shipped, and the API server's gates."""

    cluster: Cluster
    api: Api
    gates: dict[str, bool]
    kubelet: FakeKubelet

    @property
    def wanted(self) -> Json:
        """Return the slice as it should be."""
        uid = self.api.get("nodes", NODE)["metadata"]["uid"]
        return resource_slice(
            cards("a100-80g", 2, NODE), node=NODE, node_uid=uid, driver=DRIVER, split_count=10
        )

    def slice(self) -> Json | None:
        """Return the slice as it is."""
        found = self.api.list("resourceslices")
        return found[0] if found else None

    def is_right(self) -> bool:
        """Tell whether the slice is as it should be."""
        found = self.slice()
        return found is not None and is_same(found, self.wanted)

    def warnings(self) -> list[str]:
        """Return the reasons of what the node's events say."""
        return [each["reason"] for each in self.api.list("events", namespace="default")]


@pytest.fixture(scope="module")
def site(kube_version: str | None) -> Iterator[Site]:
    """An agent that starts where the API server does not know how cards are shared."""
    gates = {GATE: False}
    with (
        tempfile.TemporaryDirectory(prefix="hd-") as short,
        Cluster.start(version=kube_version, audited=True, gates=gates) as cluster,
        Api(cluster.kubeconfig) as api,
    ):
        root = Path(short)
        account.install(cluster)
        api.create("nodes", {"metadata": {"name": NODE}})
        arguments = [
            *("--name", NODE, "--devices", "simulated", "--count", "2", "--port", "0"),
            *("--kubelet-directory", short, "--cdi-directory", str(root / "cdi")),
            *("--run-directory", str(root / "run"), "--address", "127.0.0.1"),
        ]
        argv = [sys.executable, "-m", "hami_dra.node", "run", *arguments]
        cluster.start_process("agent", argv, account.account(cluster, api, NODE))
        yield Site(cluster, api, gates, FakeKubelet(root / "plugins_registry"))


def test_dropped_fields_are_told_and_put_right_when_the_gate_is_on_again(site: Site) -> None:
    until(lambda: "ApiServerDropsFields" in site.warnings(), what="people are told")
    stored = site.slice()
    assert stored is not None
    assert "allowMultipleAllocations" in dropped_fields(site.wanted, stored)

    site.gates[GATE] = True
    site.cluster.restart(API_SERVER)

    until(site.is_right, what="the slice is as it should be")


async def heartbeats(kubelet: FakeKubelet) -> None:
    """Wait until the agent has said twice how its cards are, ten seconds apart."""
    async with kubelet.registered() as plugin, aclosing(plugin.health()) as stream:
        await anext(stream)
        await anext(stream)


def test_an_agent_that_has_nothing_to_do_asks_the_api_server_for_nothing(site: Site) -> None:
    until(
        lambda: site.is_right() or "ApiServerDropsFields" in site.warnings(),
        what="the agent has done what it can",
    )
    with site.cluster.audit.recording(site.api) as recorded:
        site.api.run(lambda _: heartbeats(site.kubelet))

    user = f"system:serviceaccount:{account.NAME}:{account.NAME}"
    # A watch ends after some minutes, and may just now.
    assert [each for each in recorded.events(user=user) if each.verb != "watch"] == []
