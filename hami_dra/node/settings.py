"""How an agent runs on its node: environment and flags."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from hami_dra.logs import LogFormat
from hami_dra.migration.names import DRIVER
from hami_dra.node.limits import CorePolicy
from hami_dra.variables import (
    Described,
    absolute,
    choice,
    fields,
    level,
    number,
    object_name,
    read_values,
    switch,
)

PREFIX: Final = "HAMI_DRA_NODE_"


class Devices(StrEnum):
    """Where cards come from."""

    AUTO = "auto"
    NVML = "nvml"
    SIMULATED = "simulated"


class CdiMode(StrEnum):
    """How to find out what containers need to use real cards."""

    AUTO = "auto"
    TOOLKIT = "toolkit"
    SPEC = "spec"
    OWN = "own"


def _core_policy(text: str) -> CorePolicy:
    known = {policy.name.lower(): policy for policy in CorePolicy}
    if text not in known:
        raise ValueError(f"expected one of {', '.join(known)}")
    return known[text]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Environment variables HAMI_DRA_NODE_<FIELD>; flags of the same name win."""

    name: Annotated[
        str,
        Described(
            object_name,
            "Name of this node's Node object. In a pod: the downward API's spec.nodeName.",
        ),
    ]
    driver: Annotated[
        str, Described(str, "Name of the DRA driver, which DeviceClasses select by.")
    ] = DRIVER
    devices: Annotated[
        Devices,
        Described(
            choice(Devices),
            "nvml: the NVIDIA cards of this node. simulated: cards that do not exist, for trying"
            " things out; refused where real ones exist. auto: real ones if there are any, and"
            " none otherwise.",
        ),
    ] = Devices.AUTO
    profile: Annotated[
        str, Described(str, "Model of simulated cards: a100-80g, h100-80g or l4-24g.")
    ] = "a100-80g"
    count: Annotated[int, Described(number(0, 64), "Number of simulated cards.")] = 1
    split_count: Annotated[
        int,
        Described(number(1, 100), "How many tenants one card may have, HAMi's deviceSplitCount."),
    ] = 10
    kubelet_directory: Annotated[
        Path,
        Described(
            absolute,
            "The kubelet's root directory, with the same path inside and outside of the container.",
        ),
    ] = Path("/var/lib/kubelet")
    cdi_directory: Annotated[
        Path,
        Described(absolute, "A directory in which the container runtime looks for CDI files."),
    ] = Path("/var/run/cdi")
    cdi_mode: Annotated[
        CdiMode,
        Described(
            choice(CdiMode),
            "toolkit: ask nvidia-ctk. spec: read the CDI spec that it made on the host. own: list"
            " the driver's files without it. auto: the first of these that works. Simulated cards"
            " need none.",
        ),
    ] = CdiMode.AUTO
    driver_root: Annotated[
        Path,
        Described(
            absolute,
            "Below which the agent finds NVIDIA's driver, such as /run/nvidia/driver; for"
            " --cdi-mode own.",
        ),
    ] = Path("/")
    host_driver_root: Annotated[
        Path | None,
        Described(
            absolute, "The same directory as the container runtime sees it. Default: the same."
        ),
    ] = None
    run_directory: Annotated[
        Path,
        Described(
            absolute,
            "Where the files of claims lie until the next boot, with the same path inside and"
            " outside.",
        ),
    ] = Path("/run/hami-dra")
    instance: Annotated[
        str,
        Described(
            str,
            "Tells apart agents that live on one node at one time, as in a rolling update: the"
            " pod's UID. Empty: there is only one, and a second one is refused.",
        ),
    ] = ""
    library: Annotated[
        Path | None,
        Described(
            Path,
            "libvgpu.so, the library that holds containers to their limits. Default: none, and"
            " limits are told to containers but not enforced in them.",
        ),
    ] = None
    core_policy: Annotated[
        CorePolicy,
        Described(
            _core_policy,
            "HAMi's gpuCorePolicy, when containers are held to their share of compute: default,"
            " force or disable. A claim's annotation hami-dra.io/core-policy wins.",
        ),
    ] = CorePolicy.DEFAULT
    allow_disable: Annotated[
        bool,
        Described(
            switch,
            "true or false: whether a container may lift its own limits, as HAMi lets it, by"
            " CUDA_DISABLE_CONTROL=true or by annotations of its claim.",
        ),
    ] = True
    address: Annotated[
        str,
        Described(str, "Address for probes and metrics. Default: every address of both families."),
    ] = ""
    port: Annotated[
        int,
        Described(
            number(0, 65535),
            "TCP port for probes and metrics: /healthz, /readyz, /metrics. 0 lets the system"
            " choose.",
        ),
    ] = 8080
    account: Annotated[
        Path, Described(absolute, "The pod's service account: token and ca.crt.")
    ] = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    kubeconfig: Annotated[
        Path | None,
        Described(
            Path,
            "How to reach the API server. Default: KUBECONFIG, the pod's service account, the"
            " home.",
        ),
    ] = None
    context: Annotated[
        str | None, Described(str, "Context of the kubeconfig. Default: its current one.")
    ] = None
    log_format: Annotated[
        LogFormat,
        Described(choice(LogFormat), "json, text, or auto: text on a terminal and JSON elsewhere."),
    ] = LogFormat.AUTO
    log_level: Annotated[
        str,
        Described(
            level,
            "The least severe lines to write: debug, info, warning or error. Every call for a claim"
            " is one at info.",
        ),
    ] = "info"

    @property
    def registry(self) -> Path:
        """Where the kubelet looks for plugins."""
        return self.kubelet_directory / "plugins_registry"

    @property
    def plugin_directory(self) -> Path:
        """Where the checkpoint and the plugin's socket lie."""
        return self.kubelet_directory / "plugins" / self.driver


def described() -> Mapping[str, Described]:
    """Return what can be set, by name."""
    return fields(Settings)


def read(environ: Mapping[str, str], flags: Mapping[str, str]) -> Settings:
    """Read settings from flags, or else from the environment; an empty variable counts as unset.

    Raises:
        SettingsError: if one is missing or wrong.
    """
    return Settings(**read_values(described(), (PREFIX,), environ, flags))
