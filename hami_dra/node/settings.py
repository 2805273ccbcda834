"""How an agent runs on its node: environment and flags."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from hami_dra.logs import LogFormat
from hami_dra.migration.family import DRIVER

PREFIX = "HAMI_DRA_NODE_"


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


class Settings(BaseSettings):
    """Environment variables HAMI_DRA_NODE_<FIELD>; flags of the same name win."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        frozen=True,
        use_attribute_docstrings=True,
    )

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of this node's Node object. In a pod: the downward API's spec.nodeName."""
    driver: str = DRIVER
    """Name of the DRA driver, which DeviceClasses select by."""
    devices: Devices = Devices.AUTO
    """nvml: the NVIDIA cards of this node. simulated: cards that do not exist, for trying things
    out; refused where real ones exist. auto: real ones if there are any, and none otherwise."""
    profile: str = "a100-80g"
    """Model of simulated cards."""
    count: Annotated[int, Field(ge=0, le=64)] = 1
    """Number of simulated cards."""
    split_count: Annotated[int, Field(ge=1, le=100)] = 10
    """How many tenants one card may have, HAMi's deviceSplitCount."""
    kubelet_directory: Path = Path("/var/lib/kubelet")
    """The kubelet's root directory, with the same path inside and outside of the container."""
    cdi_directory: Path = Path("/var/run/cdi")
    """A directory in which the container runtime looks for CDI files."""
    cdi_mode: CdiMode = CdiMode.AUTO
    """toolkit: ask nvidia-ctk. spec: read the CDI spec that it made on the host. auto: the first of
    these that works. Simulated cards need neither."""
    run_directory: Path = Path("/run/hami-dra")
    """Where the files of claims lie until the next boot, with the same path inside and outside."""
    instance: str = ""
    """Tells apart agents that live on one node at one time, as in a rolling update: the pod's UID.
    Empty: there is only one, and a second one is refused."""
    library: Path | None = None
    """libvgpu.so, the library that holds containers to their limits. Default: none, and limits are
    told to containers but not enforced in them."""
    address: str = ""
    """Address for probes and metrics. Default: every address of both families."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """TCP port for probes and metrics: /healthz, /readyz, /metrics. 0 lets the system choose."""
    kubeconfig: Path | None = None
    """How to reach the API server. Default: KUBECONFIG, the pod's service account, the home."""
    context: str | None = None
    """Context of the kubeconfig. Default: its current one."""
    log_format: LogFormat = LogFormat.AUTO
    """json, text, or auto: text on a terminal and JSON elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines to write; every call for a claim is one line at info."""

    @property
    def registry(self) -> Path:
        """Where the kubelet looks for plugins."""
        return self.kubelet_directory / "plugins_registry"

    @property
    def plugin_directory(self) -> Path:
        """Where the checkpoint and the plugin's socket lie."""
        return self.kubelet_directory / "plugins" / self.driver

    @model_validator(mode="after")
    def _have_absolute_paths(self) -> "Settings":
        for path in (self.kubelet_directory, self.cdi_directory, self.run_directory):
            if not path.is_absolute():
                raise ValueError(
                    f"found the path {path}, expected an absolute one: kubelet and container"
                    " runtime are told the same paths"
                )
        return self
