"""A preflight of a real cluster: all is well, and broken one way each it says what to do."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from hami_dra.cli.app import app
from hami_dra.lab import build, controlplane, pki
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.controlplane import API_SERVER, CONTROLLER_MANAGER, Ports
from hami_dra.lab.layout import Layout
from hami_dra.lab.ports import LOOPBACK, free_ports
from hami_dra.lab.wait import until
from hami_dra.migration import Json
from tests.e2e.breakage import BROKEN, GOES_PAST_US
from tests.e2e.world import World

pytestmark = pytest.mark.cluster

PROGRAM = Path(sys.executable).with_name("hami-dra")


def preflight(
    world: World, *arguments: str, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user would."""
    chosen = str(kubeconfig or world.scene.cluster.kubeconfig)
    where = ("--kubeconfig", chosen, "--namespace", world.namespace)
    return subprocess.run(
        [PROGRAM, "preflight", *where, *arguments], capture_output=True, text=True, check=False
    )


def facts(world: World, *arguments: str, kubeconfig: Path | None = None) -> dict[str, Json]:
    """Return the facts by id; the exit code tells whether one fails."""
    chosen = str(kubeconfig or world.scene.cluster.kubeconfig)
    where = ("--kubeconfig", chosen, "--namespace", world.namespace)
    done = CliRunner().invoke(app, ["preflight", *where, "-o", "json", *arguments])
    assert done.exit_code in (0, 3), done.stderr
    found = {fact["id"]: fact for fact in json.loads(done.stdout)}
    failing = [fact for fact in found.values() if fact["status"] == "fail"]
    assert done.exit_code == (3 if failing else 0)
    return found


@pytest.fixture
def ready(world: World) -> World:
    """Have a cluster with cards."""
    world.add_node("gpu", l4_24g=1)
    world.await_card_sizes(23034)
    return world


def test_a_good_cluster_passes_everything(ready: World) -> None:
    kubernetes = ready.kubernetes
    expected = set[str]() if kubernetes.needs_no_gate else {"kubernetes-version"}

    def settled() -> dict[str, Json] | None:
        """What another test broke a moment ago may take one to be seen as mended."""
        seen = facts(ready)
        not_passed = {id_ for id_, fact in seen.items() if fact["status"] != "pass"}
        return seen if not_passed == expected else None

    found = until(settled, what="every fact passes")
    assert "controller-manager-rate" not in found
    table = preflight(ready)
    assert "\x1b" not in table.stdout
    assert "pass      driver-profile" in table.stdout
    assert "profile hami-dra" in table.stdout
    assert "ready: " in table.stderr


@pytest.mark.parametrize("case", BROKEN)
def test_a_cluster_broken_one_way_is_told_what_to_do(ready: World, case: str) -> None:
    broken, expected = BROKEN[case]
    if case == GOES_PAST_US and not ready.kubernetes.lets_classes_stand_for_resources:
        # The field's gate is off there, so the API server drops it.
        expected = {"extended-resource-name": ("pass", "")}

    def as_expected() -> bool:
        """The API server heeds a change of its registrations only after a moment."""
        found = facts(ready)
        return {
            id_: (found[id_]["status"], fix if fix in found[id_]["fix"] else found[id_])
            for id_, (_, fix) in expected.items()
        } == expected

    with broken(ready):
        until(as_expected, what=f"preflight says {expected}")


def test_a_gate_that_is_off_is_noticed(ready: World) -> None:
    """Another API server on the same etcd, which drops what makes a claim a share."""
    cluster = ready.scene.cluster
    layout, assets = Layout(cluster.directory), build.assets(cluster.version)
    [port] = free_ports(1)
    arguments = controlplane.api_server_arguments(layout, Ports(port, 0, 0), cluster.version)
    argv = [str(assets.directory / API_SERVER), *arguments]
    process = cluster.start_process(
        "gate-off", [*argv, "--feature-gates=DRAConsumableCapacity=false"], grace_s=0
    )
    try:
        config = YAML(typ="safe").load(cluster.kubeconfig)
        config["clusters"][0]["cluster"]["server"] = f"https://{LOOPBACK}:{port}"
        elsewhere = cluster.directory / "gate-off.kubeconfig"
        pki.write_kubeconfig(elsewhere, config)

        def answered() -> bool:
            process.check()
            return preflight(ready, kubeconfig=elsewhere).returncode != 1

        until(answered, what="the other API server answers")
        found = facts(ready, kubeconfig=elsewhere)
    finally:
        process.stop()

    assert found["consumable-capacity"]["status"] == "fail"
    assert "--feature-gates=DRAConsumableCapacity=true" in found["consumable-capacity"]["fix"]
    assert found["prioritized-list"]["status"] == "pass"


def test_what_an_account_may_not_read_is_unknown_and_said_so(ready: World) -> None:
    cluster = ready.scene.cluster
    ready.kubectl("create", "serviceaccount", "nobody")
    token = ready.kubectl("create", "token", "nobody").stdout.strip()
    config = pki.kubeconfig(cluster.server, cluster.ca_pem, token)
    account = cluster.directory / "nobody.kubeconfig"
    pki.write_kubeconfig(account, config)

    found = facts(ready, kubeconfig=account)

    readable = {id_ for id_, fact in found.items() if fact["status"] != "unknown"}
    assert readable == {"kubernetes-version", "dra-api"}
    assert "cannot list resource" in found["device-class"]["found"]
    said = preflight(ready, kubeconfig=account).stderr
    assert "nothing fails, but not everything could be read" in said


@pytest.fixture
def bare(kube_version: str | None) -> Iterator[Cluster]:
    """A control plane of its own, whose controller-manager has the limits that it ships with."""
    with Cluster.start(version=kube_version) as cluster:
        layout, assets = Layout(cluster.directory), build.assets(cluster.version)
        [port] = free_ports(1)
        ports = Ports(0, port, 0)
        arguments = controlplane.controller_manager_arguments(layout, ports, cluster.version)
        stock = [each for each in arguments if not each.startswith("--kube-api-")]
        cluster.processes[CONTROLLER_MANAGER].stop()
        cluster.start_process("stock", [str(assets.directory / CONTROLLER_MANAGER), *stock])
        yield cluster


def test_a_bare_cluster_with_stock_limits_is_not_ready_and_measured(bare: Cluster) -> None:
    """20 calls a second with a burst of 30, and two calls a pod; afterwards nothing is left."""
    arguments = ["--kubeconfig", str(bare.kubeconfig), "--measure", "-o", "json"]
    done = CliRunner().invoke(app, ["preflight", *arguments])

    found = {fact["id"]: fact for fact in json.loads(done.stdout)}
    assert done.exit_code == 3
    failing = {id_ for id_, fact in found.items() if fact["status"] == "fail"}
    assert {"device-class", "resource-slices", "webhook-registration", "guard"} <= failing
    rate = found["controller-manager-rate"]
    assert rate["status"] == "warn", rate
    assert "--kube-api-qps=200" in rate["fix"]
    assert float(rate["found"].split()[0]) <= 15

    def left() -> list[str]:
        shown = bare.kubectl("get", "namespaces", "-l", "hami-dra.io/throw-away", "-o", "name")
        return shown.stdout.split()

    until(lambda: not left(), what="the throw-away namespace is gone")
