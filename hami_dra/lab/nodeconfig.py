"""How containerd and the kubelet of a real node are configured, for any host with root."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hami_dra.lab.pki import API_SERVICE

POD_RANGE = "10.244.0.0/24"


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Where everything of one node lies.

    Attributes:
        directory: holds all of it; short, since it holds sockets.
    """

    directory: Path

    @property
    def kubelet(self) -> Path:
        """The kubelet's root directory."""
        return self.directory / "k"

    @property
    def cdi(self) -> Path:
        """Where the runtime looks for CDI files."""
        return self.directory / "cdi"

    @property
    def run(self) -> Path:
        """Where the files of claims lie."""
        return self.directory / "run"

    @property
    def socket(self) -> Path:
        """Where containerd listens."""
        return self.directory / "c.sock"

    @property
    def networks(self) -> Path:
        """Network configuration."""
        return self.directory / "net.d"

    @property
    def containerd_config(self) -> Path:
        """How containerd runs."""
        return self.directory / "containerd.toml"

    @property
    def kubelet_config(self) -> Path:
        """How the kubelet runs."""
        return self.directory / "kubelet.json"

    @property
    def kubeconfig(self) -> Path:
        """Who the kubelet is."""
        return self.directory / "kubelet.kubeconfig"


def containerd_config(layout: NodeLayout, *, programs: Path, sandbox: str) -> str:
    """Return containerd's configuration file.

    Args:
        layout: the node's paths.
        programs: the folder with the network plugins.
        sandbox: the image of a pod's sandbox, imported already.
    """
    home = layout.directory / "containerd"
    return f"""\
version = 4
root = '{home}/root'
state = '{home}/state'

[plugins.'io.containerd.server.v1.grpc']
address = '{layout.socket}'

[plugins.'io.containerd.server.v1.ttrpc']
address = '{layout.socket}.ttrpc'

[plugins.'io.containerd.internal.v1.opt']
path = '{home}/opt'

[plugins.'io.containerd.nri.v1.nri']
disable = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{sandbox}'

[plugins.'io.containerd.cri.v1.runtime']
# Without CAP_SYS_RESOURCE runc cannot lower a container's score, and dies over it.
restrict_oom_score_adj = true
cdi_spec_dirs = ['{layout.cdi}']

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{programs}']
conf_dir = '{layout.networks}'
use_internal_loopback = true
"""


def network_config(layout: NodeLayout) -> dict[str, Any]:
    """Return the network of pods: a wire to the host each, which is enough on one node.

    The host's ends bear the address of the API server's Service, so that what pods send there
    arrives at the host without a rule of any firewall. Pods reach that and each other, no more.
    """
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_RANGE, "gateway": API_SERVICE}]],
        "dataDir": str(layout.directory / "addresses"),
    }
    return {
        "cniVersion": "1.0.0",
        "name": "lab",
        "plugins": [{"type": "ptp", "ipam": addresses}],
    }


def kubelet_config(
    layout: NodeLayout, *, authority: Path, port: int, gates: Mapping[str, bool]
) -> dict[str, Any]:
    """Return the kubelet's configuration file, for old and new cgroups.

    Args:
        layout: the node's paths.
        authority: the cluster's authority, for clients of the kubelet.
        port: where the kubelet listens.
        gates: feature gates, those of the control plane.
    """
    never = {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "featureGates": dict(gates),
        "containerRuntimeEndpoint": f"unix://{layout.socket}",
        "port": port,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.directory / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.directory / "kubelet.key"),
        "podLogsDir": str(layout.directory / "logs"),
        "staticPodPath": "",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "evictionHard": never,
        "imageGCHighThresholdPercent": 100,
        # A failed prepare is tried again after about 2 s instead of 60 to 90.
        "syncFrequency": "1s",
        "resolvConf": "",
        # The host's firewall is not ours to change.
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,
        "nodeStatusUpdateFrequency": "2s",
    }


def text(content: object) -> str:
    """Render a configuration."""
    return json.dumps(content, indent=1)
