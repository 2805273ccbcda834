"""Installed as it ships: an image of the wheel, the overlay, pods behind Services.

One installation serves all tests of this module; its end is a test too, see `installed`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hami_dra.install.manifests import AGENT
from hami_dra.lab import webhook
from hami_dra.lab.product import product_image
from hami_dra.lab.wait import until
from hami_dra.migration.names import DRIVER
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from tests.e2e.installation import PATIENCE_S, Site
from tests.node.bed import COUNT, NAMESPACE, PROFILE, Bed, container, deployment, pod

pytestmark = pytest.mark.cluster

OVERLAY: Final = Path(__file__).parents[2] / "manifests" / "overlays" / "self-signed"
SIMULATED: Final = {
    "HAMI_DRA_NODE_DEVICES": "simulated",
    "HAMI_DRA_NODE_PROFILE": PROFILE,
    "HAMI_DRA_NODE_COUNT": str(COUNT),
}


@pytest.fixture(scope="module")
def site(bare_bed: Bed) -> Site:
    """The bed's cluster, to install into."""
    return Site(bare_bed.cluster, bare_bed.api)


@pytest.fixture(scope="module")
def installed(bare_bed: Bed, site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Install the overlay with the documented setting for simulated cards, and take all away."""
    bare_bed.node.import_image(product_image())
    before = site.everything()
    try:
        site.cluster.kubectl("apply", "-k", str(overlay(tmp_path_factory.mktemp("overlay"))))
        await_rolled_out(bare_bed, f"deployment/{NAME}", SYSTEM_NAMESPACE)
        await_rolled_out(bare_bed, f"daemonset/{AGENT}", AGENT)
        webhook.await_registered(bare_bed.api, NAMESPACE)
        yield bare_bed
    finally:
        done = site.run("uninstall", "--yes")
    assert done.exit_code == 0, done.output
    assert remains(bare_bed) == set()
    # The templates of converted pods stay on purpose; the slice goes half a minute after its agent.
    bare_bed.api.delete_all("resourceclaimtemplates", NAMESPACE)
    until(
        lambda: not left(site.everything(), before),
        what="nothing is left in the API",
        timeout_s=PATIENCE_S,
    )


def left(found: set[str], before: set[str]) -> set[str]:
    """Return what was not there before, and what bears our name, which others may have left."""
    return (found - before) | {each for each in found if "hami" in each}


def overlay(folder: Path) -> Path:
    """Write an overlay as a user would, on top of the one that ships."""
    settings = {
        "name": AGENT,
        "namespace": AGENT,
        "literals": [f"{name}={value}" for name, value in SIMULATED.items()],
        "options": {"disableNameSuffixHash": True},
    }
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(OVERLAY, folder.resolve())],
        "configMapGenerator": [settings],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return folder


def remains(bed: Bed) -> set[str]:
    """Name what is on the node where we keep files."""
    layout = bed.node.layout
    plugins = (layout.kubelet / "plugins", layout.kubelet / "plugins_registry")
    return {each.name for folder in (*plugins, layout.cdi, layout.run) for each in folder.iterdir()}


def await_rolled_out(bed: Bed, workload: str, namespace: str) -> None:
    """Wait until every pod of a workload is of its last revision and ready."""
    patience = f"--timeout={PATIENCE_S}s"
    bed.cluster.kubectl("rollout", "status", workload, "-n", namespace, patience)


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
