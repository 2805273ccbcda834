"""How a monitor runs on its node: environment and flags.

What agent and monitor of a node must agree on is read from the agent's variables too, so that one
ConfigMap tells both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from hami_dra.logs import LogFormat
from hami_dra.migration.names import DRIVER
from hami_dra.node.settings import PREFIX as AGENT_PREFIX
from hami_dra.node.settings import Devices
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

PREFIX: Final = "HAMI_DRA_MONITOR_"

SHARED: Final = ("name", "driver", "devices", "profile", "count", "run_directory")
"""Settings for which the agent's variable counts where the monitor's is not set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Environment variables HAMI_DRA_MONITOR_<FIELD>; flags of the same name win."""

    name: Annotated[
        str,
        Described(
            object_name,
            "Name of this node's Node object. In a pod: the downward API's spec.nodeName.",
        ),
    ]
    driver: Annotated[str, Described(str, "Name of the DRA driver whose shares are shown.")] = (
        DRIVER
    )
    devices: Annotated[
        Devices,
        Described(
            choice(Devices),
            "nvml: the NVIDIA cards of this node. simulated: those that the node's agent"
            " simulates. auto: real ones if there are any, and none otherwise.",
        ),
    ] = Devices.AUTO
    profile: Annotated[
        str, Described(str, "Model of simulated cards: a100-80g, h100-80g or l4-24g.")
    ] = "a100-80g"
    count: Annotated[int, Described(number(0, 64), "Number of simulated cards.")] = 1
    run_directory: Annotated[
        Path, Described(absolute, "Where the agent keeps the files of claims; only read.")
    ] = Path("/run/hami-dra")
    pod_resources: Annotated[
        Path,
        Described(absolute, "The kubelet's PodResources socket, which tells who has which claim."),
    ] = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    legacy_metrics: Annotated[
        bool,
        Described(
            switch, "true or false: whether HAMi's metric names from before v2.10 are shown too."
        ),
    ] = False
    address: Annotated[
        str, Described(str, "Address to listen on. Default: every address of both families.")
    ] = ""
    port: Annotated[
        int,
        Described(
            number(0, 65535),
            "TCP port: a page at /, /metrics, /healthz, /readyz. 0 lets the system choose.",
        ),
    ] = 8080
    log_format: Annotated[
        LogFormat,
        Described(choice(LogFormat), "json, text, or auto: text on a terminal and JSON elsewhere."),
    ] = LogFormat.AUTO
    log_level: Annotated[
        str, Described(level, "The least severe lines to write: debug, info, warning or error.")
    ] = "info"


def described() -> Mapping[str, Described]:
    """Return what can be set, by name."""
    return fields(Settings)


def read(environ: Mapping[str, str], flags: Mapping[str, str]) -> Settings:
    """Read settings from flags, or else from the environment; an empty variable counts as unset.

    Raises:
        SettingsError: if one is missing or wrong.
    """
    agents = {
        f"{AGENT_PREFIX}{name.upper()}": environ.get(f"{AGENT_PREFIX}{name.upper()}", "")
        for name in SHARED
    }
    ours = {name: text for name, text in environ.items() if name.startswith(PREFIX)}
    values = read_values(described(), (PREFIX, AGENT_PREFIX), {**agents, **ours}, flags)
    return Settings(**values)
