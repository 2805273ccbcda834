"""Installed as it ships: an image of the wheel, the overlay, pods behind Services.

One installation serves all tests of this module; its end is a test too, see `installed`.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from hami_dra.install.manifests import AGENT
from hami_dra.lab.wait import until
from hami_dra.migration.names import DRIVER
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from tests.e2e.installation import Site
from tests.node.bed import (
    COUNT,
    NAMESPACE,
    Bed,
    assert_limits_meet_programs,
    container,
    deployment,
    pod,
)
from tests.node.installation import apply, await_nothing_left, await_rolled_out, write_overlay

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def site(bare_bed: Bed) -> Site:
    """The bed's cluster, to install into."""
    return Site(bare_bed.cluster, bare_bed.api)


@pytest.fixture(scope="module")
def installed(bare_bed: Bed, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Install the overlay with the documented setting for simulated cards, and take all away."""
    before = site.everything()
    try:
        apply(bare_bed, write_overlay(tmp_path_factory.mktemp("overlay")))
        yield bare_bed
    finally:
        done = site.run("uninstall", "--yes")
    assert done.exit_code == 0, done.output
    # The templates of converted pods stay on purpose.
    bare_bed.api.delete_all("resourceclaimtemplates", NAMESPACE)
    await_nothing_left(bare_bed, site, before)


@pytest.fixture
def bed(installed: Bed) -> Iterator[Bed]:
    """The installed bed without pods of users, before and after."""
    yield installed
    installed.delete_pods()
    until(lambda: not installed.files(), what="no file of a claim is left", timeout_s=60)


def test_an_unmodified_deployment_runs_with_its_limits(bed: Bed) -> None:
    web = deployment("web", 2, container(gpu="1", gpumem="3000", gpucores="30"))
    bed.apply(web, "deployments")
    await_rolled_out(bed, "deployment/web", NAMESPACE)

    pods = bed.api.list("pods", namespace=NAMESPACE)
    assert len(pods) == 2
    for each in pods:
        told = bed.told(each["metadata"]["name"])
        assert told.variables["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
        assert told.variables["CUDA_DEVICE_SM_LIMIT_0"] == "30"
        assert list(told.memory_mib.values()) == [3000]
        assert "PRELOADED" in told.text


def test_limits_are_enforced_by_the_library_of_the_image(bed: Bed) -> None:
    assert_limits_meet_programs(bed)


def test_the_agent_finds_nothing_missing_on_its_node(bed: Bed) -> None:
    said = in_agent(bed, "hami-dra-node", "check")

    assert f"cards: simulated, {COUNT} found" in said
    assert "native library: /venv/lib/hami-dra/libvgpu.so" in said
    assert said.endswith("all is well\n")


# Prints whether ids are the node's, and the namespaces of the processes that it may look at.
_LOOK: Final = """
from pathlib import Path
from hami_dra.node.feed import sees_all_processes
print(sees_all_processes())
for process in Path("/proc").glob("[0-9]*"):
    try:
        print((process / "ns/pid").stat().st_ino)
    except OSError:
        pass  # it has ended, or protects itself
"""


def test_the_agent_recognises_processes_that_nvml_names(bed: Bed) -> None:
    """Which needs the ids of the node and the right to look at other users' processes."""
    bed.apply(
        pod("user", container(command="ls -Li /proc/self/ns/pid; echo END; exec sleep 1000000"))
    )
    inode = bed.told("user").text.split()[0]

    first, *namespaces = in_agent(bed, "python", "-c", _LOOK).split()

    assert first == "True"
    assert inode in namespaces


def in_agent(bed: Bed, *command: str) -> str:
    """Run a command in the agent's container."""
    arguments = ("exec", f"daemonset/{AGENT}", "-n", AGENT, "--", *command)
    return bed.cluster.kubectl(*arguments).stdout


def test_preflight_finds_nothing_to_mend(site: Site, bed: Bed) -> None:
    bed.await_slice()

    done = site.run("preflight", "-o", "json")

    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert [fact for fact in facts if fact["status"] != "pass"] == []


def test_everything_runs_with_no_more_rights_than_it_was_given(bed: Bed) -> None:
    """None of our pods was restarted, and each runs the image as its manifest says."""
    for namespace in (SYSTEM_NAMESPACE, AGENT):
        for each in bed.api.list("pods", namespace=namespace):
            [status] = each["status"]["containerStatuses"]
            assert status["restartCount"] == 0
            assert each["spec"]["serviceAccountName"] in {NAME, AGENT}
            assert "forbidden" not in logs(bed, namespace, each["metadata"]["name"])


def logs(bed: Bed, namespace: str, name: str) -> str:
    return bed.cluster.kubectl("logs", name, "-n", namespace).stdout


def test_a_rolling_update_of_the_agents_hurts_no_pod(bed: Bed) -> None:
    bed.apply(pod("before", container(gpu="1", gpumem="1000")))
    bed.await_running("before")
    published = bed.await_slice()
    bed.cluster.kubectl("rollout", "restart", f"daemonset/{AGENT}", "-n", AGENT)
    bed.apply(pod("during", container(gpu="1", gpumem="1000")))
    await_rolled_out(bed, f"daemonset/{AGENT}", AGENT)
    bed.apply(pod("after", container(gpu="1", gpumem="1000")))

    for name in ("before", "during", "after"):
        [status] = bed.await_running(name)["status"]["containerStatuses"]
        assert status["restartCount"] == 0
    assert bed.await_slice()["metadata"]["uid"] == published["metadata"]["uid"]


def test_agents_that_pods_need_to_end_are_not_removed(site: Site, bed: Bed) -> None:
    bed.apply(pod("holder", container(gpu="1", gpumem="1000")))
    bed.await_running("holder")

    done = site.run("uninstall", "--yes")

    assert done.exit_code == 1
    assert f"{NAMESPACE}/holder hold cards" in done.stderr
    assert bed.api.find("daemonsets", AGENT, namespace=AGENT), "nothing was changed"
    assert (bed.node.layout.kubelet / "plugins" / DRIVER).exists()
