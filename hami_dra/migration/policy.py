"""Policy: what a migration means. One value, read alike by webhook, CLI and node agent.

Where a process runs (ports, paths, kubeconfig) is Settings and lives in the shells.
"""

from functools import cached_property
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hami_dra.migration.family import Family, Name, Record
from hami_dra.migration.json import Json
from hami_dra.migration.presets import PRESETS

CORE_POLICY_VARIABLE: Final = "GPU_CORE_UTILIZATION_POLICY"
"""Environment variable that carries `core_policy` to the native library."""

LOG_LEVEL_VARIABLE: Final = "LIBCUDA_LOG_LEVEL"
"""Environment variable that carries `log_level` to the native library."""

_FIRST_WITHOUT_REPEATS: Final = (1, 36)  # measured on 1.34.4, 1.35.4, 1.36.3 and 1.37.2


def _expanded(written: object) -> object:
    """Replace the name of a preset by the preset, and fields on top of one by the whole."""
    if isinstance(written, str):
        return _preset(written)
    if not isinstance(written, dict):
        return written
    base = _preset(str(written.get("preset", "nvidia"))).model_dump(by_alias=True)
    return _merged(base, {key: value for key, value in written.items() if key != "preset"})


def _preset(name: str) -> Family:
    if name not in PRESETS:
        raise ValueError(f"found preset {name!r}, expected one of: {', '.join(PRESETS)}")
    return PRESETS[name]


def _merged(base: Json, above: Json) -> Json:
    """Lay fields above others; objects are laid member by member."""
    merged = {
        key: _merged(base[key], value)
        if isinstance(value, dict) and isinstance(base.get(key), dict)
        else value
        for key, value in above.items()
    }
    return {**base, **merged}


class HintNames(Record):
    """Annotations that steer HAMi's scheduler; an empty name switches one off."""

    gpu_policy: Name = "hami.io/gpu-scheduler-policy"
    """Order of cards on a node, which no claim can say, except `mutex`: an empty card."""
    node_policy: Name = "hami.io/node-scheduler-policy"
    """Order of nodes, which no claim can say."""
    weights: Name = "hami.io/device-scoring-weights"
    """Weights of that order."""


class Policy(Record):
    """Everything that decides what a migration means."""

    families: tuple[Annotated[Family, BeforeValidator(_expanded)], ...] = (Family(),)
    """The vocabularies that are converted: the name of a preset, or fields that differ from the one
    that `preset` names, from NVIDIA's otherwise."""
    hints: HintNames = HintNames()
    """Annotations that are understood but cannot all be kept."""
    kubernetes: Annotated[str, Field(pattern=r"^([0-9]+\.[0-9]+)?$")] = ""
    """Version of the API server and scheduler, `major.minor`: before 1.36 several cards a container
    need another form of claim. Empty means not known, and the newest form is used."""
    legacy_schedulers: tuple[str, ...] = ("hami-scheduler",)
    """Values of schedulerName that meant HAMi's scheduler."""
    target_scheduler: str = ""
    """What replaces them; empty removes the field, which means the cluster's default scheduler."""
    privileged: Literal["reject", "warn"] = "reject"
    """What happens to a GPU pod with a privileged container, which sees every card of its node and
    so escapes any share; legacy refused it."""
    add_toleration: bool = False
    """Whether GPU pods get a toleration of the taint `<count resource>: Exists`, as clusters with
    the admission plugin ExtendedResourceToleration gave them."""
    runtime_class: str = ""
    """RuntimeClass of GPU pods that name none; empty for none, since CDI needs none."""
    core_policy: Literal["", "default", "force", "disable"] = ""
    """HAMi's gpuCorePolicy: how strictly the native library keeps to a share of compute. Written to
    GPU_CORE_UTILIZATION_POLICY in every container of a GPU pod unless empty or default."""
    log_level: Literal["", "0", "1", "2", "3", "4"] = ""
    """Log level of the native library, written to LIBCUDA_LOG_LEVEL in containers with a card."""
    hide_cards: bool = False
    """HAMi's overwriteEnv: whether containers of a GPU pod get the `visibleVariable` of each family
    that they have no card of, for nodes whose default runtime shows every card to images that ask
    for it."""

    @model_validator(mode="after")
    def _claim_each_name_once(self) -> Self:
        owners: dict[str, int] = {}
        for index, family in enumerate(self.families):
            for name in (family.name, *family.managed_names):
                if owners.setdefault(name, index) != index:
                    raise ValueError(
                        f"found {name} in the families {self.families[owners[name]].name} and"
                        f" {family.name}, expected each name and resource in one"
                    )
        return self

    @cached_property
    def managed_names(self) -> tuple[str, ...]:
        """The resource names of all families."""
        return tuple(name for family in self.families for name in family.managed_names)

    @cached_property
    def converted_names(self) -> tuple[str, ...]:
        """Those of families with a DeviceClass; others are left to their device plugins."""
        converted = (family for family in self.families if family.device_class)
        return tuple(name for family in converted for name in family.managed_names)

    @cached_property
    def card_names(self) -> tuple[str, ...]:
        """Those that ask for cards."""
        return tuple(name for family in self.families for name in family.card_names)

    @cached_property
    def device_classes(self) -> tuple[str, ...]:
        """The DeviceClasses that converted claims ask for; their claims count against quotas."""
        served = (family for family in self.families if family.device_class)
        names = (name for f in served for name in (f.device_class, f.mig_device_class) if name)
        return tuple(dict.fromkeys(names))

    def __hash__(self) -> int:
        """Hash the families, which hash their fields once; all fields decide equality."""
        return hash(self.families)

    @property
    def repeats_cards(self) -> bool:
        """Tell whether this cluster may give one card twice to a request for several."""
        if not self.kubernetes:
            return False
        major, minor = self.kubernetes.split(".")
        return (int(major), int(minor)) < _FIRST_WITHOUT_REPEATS
