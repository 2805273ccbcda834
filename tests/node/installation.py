"""The product on the real node as it ships: how it is applied, and what may be left of it."""

import json
import os
from pathlib import Path
from typing import Final

from hami_dra.install.manifests import AGENT, MONITOR
from hami_dra.lab import webhook
from hami_dra.lab.product import product_image
from hami_dra.lab.wait import until
from hami_dra.migration.registration import NAME, SYSTEM_NAMESPACE
from tests.e2e.installation import Site
from tests.e2e.world import PATIENCE
from tests.node.bed import COUNT, NAMESPACE, PROFILE, Bed

OVERLAY: Final = Path(__file__).parents[2] / "manifests" / "overlays" / "self-signed"
SIMULATED: Final = {
    "HAMI_DRA_NODE_DEVICES": "simulated",
    "HAMI_DRA_NODE_PROFILE": PROFILE,
    "HAMI_DRA_NODE_COUNT": str(COUNT),
}


def write_overlay(folder: Path) -> Path:
    """Write an overlay as a user would, with simulated cards, on top of the one that ships."""
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


def apply(bed: Bed, overlay: Path) -> None:
    """Apply an overlay with kubectl, and wait until webhook, agent and monitor serve."""
    bed.node.import_image(product_image())
    bed.cluster.kubectl("apply", "-k", str(overlay))
    await_rolled_out(bed, f"deployment/{NAME}", SYSTEM_NAMESPACE)
    await_rolled_out(bed, f"daemonset/{AGENT}", AGENT)
    await_rolled_out(bed, f"daemonset/{MONITOR}", AGENT)
    webhook.await_registered(bed.api, NAMESPACE)


def await_rolled_out(bed: Bed, workload: str, namespace: str) -> None:
    """Wait until every pod of a workload is of its last revision and ready."""
    bed.cluster.kubectl("rollout", "status", workload, "-n", namespace, PATIENCE)


def shown(bed: Bed, path: str) -> str:
    """Return a page of the monitor, through its Service, which the API server leads to its pod."""
    place = f"/api/v1/namespaces/{AGENT}/services/{MONITOR}:http/proxy/{path}"
    return bed.cluster.kubectl("get", "--raw", place).stdout


def await_nothing_left(bed: Bed, site: Site, before: set[str]) -> None:
    """See that the node is as it was, and wait until the API is.

    The slice goes half a minute after its agent.
    """
    assert _files(bed) == set()

    def is_clean() -> bool:
        left = _left(site.everything(), before)
        assert not left, sorted(left)
        return True

    until(
        is_clean,
        what="nothing is left in the API",
        tolerate=(AssertionError,),
    )


def _left(found: set[str], before: set[str]) -> set[str]:
    """Return what was not there before, and what bears our name, which others may have left."""
    return (found - before) | {each for each in found if "hami" in each}


def _files(bed: Bed) -> set[str]:
    """Name what is on the node where we keep files."""
    layout = bed.node.layout
    plugins = (layout.kubelet / "plugins", layout.kubelet / "plugins_registry")
    return {each.name for folder in (*plugins, layout.cdi, layout.run) for each in folder.iterdir()}
