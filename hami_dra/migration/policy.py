"""Policy: what a migration means. One value, read alike by webhook, CLI and node agent.

Where a process runs (ports, paths, kubeconfig) is Settings and lives in the shells.
Unknown keys are errors. A vendor is data here (ruling 23), never a branch in the code.
"""

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

INT32_MAX: Final = 2**31 - 1
"""Legacy amounts are int32; anything larger is rejected, never wrapped (ruling 9)."""

DRIVER: Final = "hami-core-gpu.project-hami.io"
"""Name of our DRA driver and of its DeviceClass (ruling 37)."""

_FIRST_WITHOUT_REPEATS: Final = (1, 36)  # measured on 1.34.4, 1.35.4, 1.36.3 and 1.37.2

Name = Annotated[str, Field(max_length=317)]


class _Record(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
    )


class ResourceNames(_Record):
    """The extended resources of one family; an empty name switches that resource off."""

    count: Name = "nvidia.com/gpu"
    """How many different cards a container gets a share of."""
    memory: Name = "nvidia.com/gpumem"
    """Memory on each card, in MiB times `memoryFactor`."""
    percentage: Name = "nvidia.com/gpumem-percentage"
    """Memory on each card, in percent of that card."""
    cores: Name = "nvidia.com/gpucores"
    """Compute on each card, in percent of that card."""
    priority: Name = "nvidia.com/priority"
    """Task priority, 0 (high) or 1 (low); becomes an environment variable."""


class AnnotationNames(_Record):
    """The pod annotations by which people pick cards; an empty name switches one off."""

    use_type: Name = "nvidia.com/use-gputype"
    """Comma-separated parts of card names; a card must contain one of them."""
    nouse_type: Name = "nvidia.com/nouse-gputype"
    """Comma-separated parts of card names; a card must contain none of them."""
    use_uuid: Name = "nvidia.com/use-gpuuuid"
    """Comma-separated UUIDs; a card must be one of them."""
    nouse_uuid: Name = "nvidia.com/nouse-gpuuuid"
    """Comma-separated UUIDs; a card must be none of them."""


class Family(_Record):
    """One vendor's vocabulary and the DeviceClass that serves it. Defaults: NVIDIA by HAMi."""

    name: str = "nvidia"
    """How messages call this family."""
    resources: ResourceNames = ResourceNames()
    """The extended resource names that containers carry."""
    annotations: AnnotationNames = AnnotationNames()
    """The annotations that choose cards."""
    device_class: str = DRIVER
    """The DeviceClass that claims ask for."""
    driver: str = DRIVER
    """The DRA driver, which is the domain of the attributes below."""
    entry_prefix: str = "gpu"
    """Name of the request in a claim, and start of the claim's name in the pod,
    `<prefix>-<container>`."""
    type_attribute: str = "productName"
    """Device attribute with the card's raw model name."""
    type_name_prefix: str = "NVIDIA"
    """Legacy registered a card under `<prefix>-<model>` unless the model starts with the prefix."""
    uuid_attribute: str = "uuid"
    """Device attribute with the card's UUID."""
    publishes_slots: bool = True
    """Whether the driver publishes the `slots` capacity, as ours does (profile `hami-dra`) and
    upstream's does not (profile `hami`); without it exclusivity is weaker (ruling 4)."""
    accept_old_type_names: bool = True
    """Match `NVIDIA-NVIDIA L4` too: older releases prefixed every model, and manifests still say
    so (ruling 12)."""
    priority_variable: str = "CUDA_TASK_PRIORITY"
    """Environment variable that carries the priority."""
    default_count: Annotated[int, Field(ge=0, le=INT32_MAX)] = 1
    """Cards for a container that asks for memory or cores alone; 0 leaves such a pod alone."""
    default_memory: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0
    """MiB for a container that names neither memory nor percentage; 0 means the whole card."""
    default_cores: Annotated[int, Field(ge=0)] = 0
    """Percent of a card for a container that shares it and names no cores; 0 means no limit."""
    memory_factor: Annotated[int, Field(ge=0)] = 1
    """MiB in one unit of the memory resource; 0 counts as 1, as in legacy."""


class Policy(_Record):
    """Everything that decides what a migration means."""

    families: tuple[Family, ...] = (Family(),)
    """The vocabularies that are converted."""
    kubernetes: Annotated[str, Field(pattern=r"^([0-9]+\.[0-9]+)?$")] = ""
    """Version of the API server and scheduler, `major.minor`: before 1.36 several cards a container
    need another form of claim (ruling 10). Empty means not known, and the newest form is used."""
    legacy_schedulers: tuple[str, ...] = ("hami-scheduler",)
    """Values of schedulerName that meant HAMi's scheduler (ruling 17)."""
    target_scheduler: str = ""
    """What replaces them; empty removes the field, which means the cluster's default scheduler."""
    privileged: Literal["reject", "warn"] = "reject"
    """What happens to a GPU pod with a privileged container, which sees every card of its node and
    so escapes any share; legacy refused it (ruling 16)."""

    @property
    def repeats_cards(self) -> bool:
        """Tell whether this cluster may give one card twice to a request for several."""
        if not self.kubernetes:
            return False
        major, minor = self.kubernetes.split(".")
        return (int(major), int(minor)) < _FIRST_WITHOUT_REPEATS
