"""The identity that an agent's pod has: its service account, bound to a pod of its node."""

import json
import tempfile
from pathlib import Path

from hami_dra.lab.api import Api
from hami_dra.lab.cluster import Cluster
from hami_dra.lab.replica import in_pod
from hami_dra.lab.webhook import manifests

NAME = "hami-dra-node"
"""Of the service account and of its namespace."""


def install(cluster: Cluster) -> None:
    """Install what the agent's pods need: account, rights and policy; their pods too."""
    component = manifests() / "components" / "node-agent"
    with tempfile.TemporaryDirectory() as folder:
        # kustomize takes relative paths alone.
        relative = Path(*([".."] * (len(Path(folder).parts) - 1)), *component.parts[1:])
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "components": [str(relative)],
        }
        (Path(folder) / "kustomization.yaml").write_text(json.dumps(overlay))
        cluster.kubectl("apply", "-k", folder)


def token(cluster: Cluster, api: Api, node: str) -> str:
    """Return the token that an agent's pod has on a node."""
    pod = {
        "metadata": {"name": f"agent-{node}"},
        "spec": {
            "nodeName": node,
            "serviceAccountName": NAME,
            "containers": [{"name": "agent", "image": "none"}],
        },
    }
    made = api.create("pods", pod, namespace=NAME)
    bound = ("--bound-object-kind=Pod", f"--bound-object-name=agent-{node}")
    uid = f"--bound-object-uid={made['metadata']['uid']}"
    return cluster.kubectl("create", "token", NAME, "-n", NAME, *bound, uid).stdout.strip()


def account(cluster: Cluster, api: Api, node: str) -> dict[str, str]:
    """Return the environment of an agent's pod, whose service account lies in a directory."""
    folder = cluster.directory / f"account-{node}"
    folder.mkdir()
    environment = in_pod(cluster, folder, token(cluster, api, node))
    return {**environment, "HAMI_DRA_NODE_ACCOUNT": str(folder)}
