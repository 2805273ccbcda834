"""Family: one vendor's vocabulary and rules, as data (ruling 23). The code knows no vendor.

The defaults are NVIDIA's, as HAMi v2.10.0 has them; `presets` holds the other families.
"""

from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from hami_dra.migration.names import DRIVER

INT32_MAX: Final = 2**31 - 1
"""Legacy amounts are int32; anything larger is rejected, never wrapped (ruling 9)."""

Name = Annotated[str, Field(max_length=317)]
Mib = Annotated[int, Field(ge=0, le=INT32_MAX)]


class Record(BaseModel):
    """A frozen part of a policy: unknown keys are errors, names in files are camelCase."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class ResourceNames(Record):
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


class AnnotationNames(Record):
    """The pod annotations by which people pick cards; an empty name switches one off."""

    use_type: Name = "nvidia.com/use-gputype"
    """Comma-separated parts of card names; a card must contain one of them."""
    nouse_type: Name = "nvidia.com/nouse-gputype"
    """Comma-separated parts of card names; a card must contain none of them."""
    use_uuid: Name = "nvidia.com/use-gpuuuid"
    """Comma-separated UUIDs; a card must be one of them."""
    nouse_uuid: Name = "nvidia.com/nouse-gpuuuid"
    """Comma-separated UUIDs; a card must be none of them."""
    mode: Name = "nvidia.com/vgpu-mode"
    """How the card is to be shared; see `mode` and `migDeviceClass`."""
    numa_bind: Name = "nvidia.com/numa-bind"
    """A wish to have all cards of a container on one NUMA node, which no claim can say."""


class Capacities(Record):
    """The capacities that the driver publishes for each card; an empty name: it does not."""

    memory: str = "memory"
    """Memory in bytes."""
    cores: str = "cores"
    """Compute, in the unit of `coreUnits`."""
    slots: str = "slots"
    """Places for tenants, 100 for all of them. Our own driver publishes them; upstream's does not:
    empty there, and exclusivity is weaker."""
    slices: str = ""
    """Slices of a card, for a family whose count means slices."""


class RequiredAnnotation(Record):
    """A pod annotation without which an amount is refused."""

    name: Name
    """The annotation."""
    value: str
    """The only value that counts."""


class Family(Record):
    """One vendor's vocabulary, its rules, and the DeviceClass that serves it."""

    name: str = "nvidia"
    """How messages call this family."""
    resources: ResourceNames = ResourceNames()
    """The extended resource names that containers carry."""
    annotations: AnnotationNames = AnnotationNames()
    """The annotations that choose cards."""
    device_class: str = DRIVER
    """The DeviceClass that claims ask for; empty leaves the family's pods alone, with a notice."""
    driver: str = DRIVER
    """The DRA driver, which is the domain of the attributes below."""
    capacities: Capacities = Capacities()
    """What can be asked of a card."""
    entry_prefix: str = "gpu"
    """Name of the request in a claim, and start of the claim's name in the pod,
    `<prefix>-<container>`."""
    type_attribute: str = "productName"
    """Device attribute with the card's raw model name."""
    type_name_prefix: str = "NVIDIA"
    """Legacy registered a card under `<prefix>-<model>` unless the model starts with the prefix;
    empty: under its model."""
    accept_old_type_names: bool = True
    """Match `NVIDIA-NVIDIA L4` too: older releases prefixed every model, and manifests still say
    so."""
    model: str = ""
    """Only cards of exactly this model, for chips that share a DeviceClass; empty: any."""
    uuid_attribute: str = "uuid"
    """Device attribute with the card's UUID."""
    mode: str = "hami-core"
    """How the DeviceClass shares its cards; a mode annotation must contain this word. Empty: the
    annotation is ignored."""
    mig_device_class: str = ""
    """The DeviceClass for pods that accept MIG cards only; empty rejects them."""
    priority_variable: str = "CUDA_TASK_PRIORITY"
    """Environment variable that carries the priority."""
    visible_variable: str = "NVIDIA_VISIBLE_DEVICES"
    """Environment variable that tells the vendor's container runtime which cards to show; empty:
    there is none."""
    visible_none: str = "none"
    """Its value for no card."""
    count_means: Literal["cards", "slices"] = "cards"
    """Whether the count resource counts cards, or slices of one card, which is then one card."""
    count_multiple: Annotated[int, Field(ge=1)] = 1
    """Cards come in such groups: one becomes a group, other counts must be whole groups."""
    count_is_exclusive: bool = True
    """Whether a count without memory words means cards that nobody else uses."""
    requests_suffice: bool = False
    """Whether amounts under `requests` alone count, as some vendors' webhooks copied them."""
    default_count: Annotated[int, Field(ge=0, le=INT32_MAX)] = 1
    """Cards for a container that asks for memory or cores alone; 0 leaves such a pod alone."""
    default_memory: Mib = 0
    """MiB for a container that names neither memory nor percentage; 0 means the whole card."""
    default_cores: Annotated[int, Field(ge=0)] = 0
    """Percent of a card for a container that shares it and names no cores; 0 means no limit."""
    memory_factor: Annotated[int, Field(ge=0)] = 1
    """MiB in one unit of the memory resource; 0 counts as 1, as in legacy."""
    memory_steps: tuple[Mib, ...] = ()
    """The only shares of memory, in MiB and ascending: an amount becomes the next one, above the
    last the whole card. Empty: any amount."""
    memory_capacity: Mib = 0
    """MiB of a card; larger amounts are refused. 0: not known."""
    core_units: Annotated[int, Field(ge=0)] = 100
    """Units of compute that a whole card publishes; 100 means percent. 0: not known, and pods that
    name cores are refused."""
    cores_clamp: bool = True
    """Whether more than 100 percent of the compute becomes 100; otherwise it is refused."""
    cores_require: RequiredAnnotation | None = None
    """An annotation without which cores above 0 are refused."""

    @cached_property
    def card_names(self) -> tuple[str, ...]:
        """The resource names that ask for cards."""
        names = self.resources
        return tuple(n for n in (names.count, names.memory, names.percentage, names.cores) if n)

    @cached_property
    def share_names(self) -> tuple[str, ...]:
        """The resource names that ask for the default count of cards by being there, even as 0."""
        names = self.resources
        asked = (names.memory, names.percentage, names.cores) if self.default_count else ()
        return tuple(name for name in asked if name)

    @cached_property
    def managed_names(self) -> tuple[str, ...]:
        """All resource names that are converted."""
        priority = self.resources.priority
        return (*self.card_names, priority) if priority else self.card_names

    @cached_property
    def _digest(self) -> int:
        return hash(self.model_dump_json())

    def __hash__(self) -> int:
        """Hash all fields, once: families are keys of what a process remembers."""
        return self._digest
