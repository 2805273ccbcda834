"""Installed as it ships: an image of the wheel, the overlay, pods behind Services.

One installation serves all tests of this module; its end is a test too, see `installed`.
"""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from hami_dra.install.manifests import AGENT, MONITOR
from hami_dra.lab.wait import until
from hami_dra.migration.names import DRIVER
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from tests.e2e.installation import Site
from tests.hami_dra.monitor.world import by, series
from tests.node.bed import (
    COUNT,
    NAMESPACE,
    Bed,
    assert_limits_meet_programs,
    computing,
    container,
    deployment,
    pod,
)
from tests.node.installation import (
    apply,
    await_nothing_left,
    await_rolled_out,
    shown,
    write_overlay,
)

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
    until(lambda: not installed.files(), what="no file of a claim is left")


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
from hami_dra.node.processes import sees_all
print(sees_all())
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


def test_the_monitor_shows_limit_and_use_of_every_container(bed: Bed) -> None:
    two = (container("a", gpu="1", gpumem="3000", gpucores="30"), container("b", gpumem="2000"))
    bed.apply(deployment("web", 2, *two), "deployments")
    await_rolled_out(bed, "deployment/web", NAMESPACE)
    names = {each["metadata"]["name"] for each in bed.api.list("pods", namespace=NAMESPACE)}

    def limits() -> dict[tuple[str, ...], float]:
        found = series(shown(bed, "metrics"), "hami_vgpu_memory_limit_bytes")
        return by(found, "namespace", "pod", "container")

    expected = {(NAMESPACE, name, "a"): 3000 * 2**20 for name in names}
    expected |= {(NAMESPACE, name, "b"): 2000 * 2**20 for name in names}
    until(lambda: limits() == expected, what="the monitor shows the limits")
    text = shown(bed, "metrics")
    used = by(series(text, "hami_vgpu_memory_used_bytes"), "pod", "container")
    assert used == dict.fromkeys([(name, each) for name in names for each in "ab"], 0)
    given = series(text, "hami_gpu_memory_allocated_bytes")
    assert sum(given.values()) == 2 * 5000 * 2**20
    assert by(series(text, "hami_dra_monitor_source_up"), "source") == dict.fromkeys(
        ["cards", "claims", "pod-resources"], 1
    )
    page = shown(bed, "")
    assert all(f"{NAMESPACE}/{name}" in page for name in names)

    bed.delete_pods()

    def nothing_is_left() -> bool:
        text = shown(bed, "metrics")
        left = series(text, "hami_vgpu_memory_limit_bytes")
        return not left and not sum(series(text, "hami_gpu_shared_count").values())

    until(nothing_is_left, what="no series and no share of the pods is left")


# Takes 64 MiB on every card, of which its claim has one, and asks there for more than there is.
_TAKE: Final = """
int main(void)
{
    int count = 0, card;
    void* context;
    address taken;
    int wrong = cuInit(0) || cuDeviceGetCount(&count);
    for (int i = 0; i < count; i++) {
        wrong |= cuDeviceGet(&card, i) || cuCtxCreate_v2(&context, 0, card);
        wrong |= cuMemAlloc_v2(&taken, 64 << 20);
        printf("more on %d: %d\\n", i, cuMemAlloc_v2(&taken, (size_t)1000 << 20));
    }
    printf("wrong %d of %d\\nEND\\n", wrong, count);
    fflush(stdout);
    pause();
}
"""


def test_memory_that_a_program_takes_is_seen_from_outside(bed: Bed) -> None:
    """Through the library of the image, the claim's books and the monitor, as it is installed."""
    uuids = ",".join(card.uuid for card in bed.cards)
    bed.apply(computing(bed, "takes", _TAKE, uuids=uuids, gpu="1", gpumem="1000"))
    said = bed.told("takes").text
    assert f"wrong 0 of {COUNT}" in said, said

    def buffers() -> dict[str, float] | None:
        found = series(shown(bed, "metrics"), "hami_vgpu_memory_buffer_bytes")
        return by(found, "pod") or None

    # A look is good for a second, and this pod may be younger.
    assert until(buffers, what="the monitor shows the pod") == {"takes": 64 * 2**20}
    text = shown(bed, "metrics")
    assert by(series(text, "hami_vgpu_memory_limit_bytes"), "pod") == {"takes": 1000 * 2**20}
    refusals = by(series(text, "hami_dra_monitor_container_refusals_total"), "pod")
    assert refusals == {"takes": 1}, said
    utilization = series(text, "hami_container_device_utilization_ratio")
    assert utilization == {}, "nobody measures simulated cards"


def test_the_monitor_has_no_token_and_may_do_nothing(bed: Bed) -> None:
    account = f"--as=system:serviceaccount:{AGENT}:{MONITOR}"
    for verb, what in (("list", "pods"), ("get", "nodes"), ("list", "resourceslices")):
        done = bed.cluster.kubectl("auth", "can-i", verb, what, account, "-A", check=False)
        assert done.stdout.strip() == "no"
    [each] = [
        each
        for each in bed.api.list("pods", namespace=AGENT)
        if each["spec"]["serviceAccountName"] == MONITOR
    ]
    mounted = {volume["name"] for volume in each["spec"]["volumes"]}
    assert mounted == {"pod-resources", "run"}, "and no projected token"


def test_preflight_finds_nothing_to_mend(site: Site, bed: Bed) -> None:
    bed.await_slice()

    done = site.run("preflight", "-o", "json")

    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    noted = [] if bed.kubernetes.needs_no_gate else ["kubernetes-version"]
    assert [fact["id"] for fact in facts if fact["status"] != "pass"] == noted, facts


def test_everything_runs_with_no_more_rights_than_it_was_given(bed: Bed) -> None:
    """None of our pods was restarted, and each runs the image as its manifest says."""
    accounts = {NAME, AGENT, MONITOR}
    for namespace in (SYSTEM_NAMESPACE, AGENT):
        for each in bed.api.list("pods", namespace=namespace):
            [status] = each["status"]["containerStatuses"]
            assert status["restartCount"] == 0
            assert each["spec"]["serviceAccountName"] in accounts
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
