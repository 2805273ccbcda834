"""Families that ship beside NVIDIA's, by name; a policy lists the ones that its cluster has.

Facts: HAMi v2.10.0's device configuration and vendor code, and the DRA drivers that exist.
"""

from typing import Final

from hami_dra.migration.family import (
    AnnotationNames,
    Capacities,
    Family,
    RequiredAnnotation,
    ResourceNames,
)

_SHARED_WITHOUT_SLOTS: Final = Capacities(slots="")


def _ascend(word: str, model: str, capacity: int, *steps: int, group: int = 1) -> Family:
    """Describe a Huawei Ascend chip.

    Args:
        word: HAMi's name, which the resources and annotations contain.
        model: the chip's name as the driver publishes it.
        capacity: MiB of a card.
        *steps: MiB of the shares that the hardware can make.
        group: chips that only come together.
    """
    return Family(
        name=word,
        resources=ResourceNames(
            count=f"huawei.com/{word}",
            memory=f"huawei.com/{word}-memory",
            percentage="",
            cores=f"huawei.com/{word}-core",
            priority="",
        ),
        annotations=AnnotationNames(
            use_type="hami.io/use-nputype",
            nouse_type="hami.io/no-use-nputype",
            use_uuid=f"hami.io/use-{word}-uuid",
            nouse_uuid=f"hami.io/no-use-{word}-uuid",
            mode="",
            numa_bind="",
        ),
        device_class="hami-vnpu-core.project-hami.io",
        driver="ascend.project-hami.io",
        capacities=_SHARED_WITHOUT_SLOTS,
        entry_prefix="npu",
        type_name_prefix="",
        accept_old_type_names=False,
        model=model,
        visible_variable="ASCEND_VISIBLE_DEVICES",
        visible_none="",
        count_is_exclusive=False,
        count_multiple=group,
        memory_capacity=capacity,
        memory_steps=steps,
        cores_require=RequiredAnnotation(name="huawei.com/vnpu-mode", value="hami-core"),
    )


def _hygon(spelling: str) -> Family:
    """Describe Hygon's cards in one of the two spellings of their resources."""
    return Family(
        name=f"hygon-{spelling}",
        resources=ResourceNames(
            count=f"hygon.com/{spelling}num",
            memory=f"hygon.com/{spelling}mem",
            percentage="",
            cores=f"hygon.com/{spelling}cores",
            priority="",
        ),
        annotations=AnnotationNames(
            use_type=f"hygon.com/use-{spelling}type",
            nouse_type=f"hygon.com/nouse-{spelling}type",
            use_uuid="hygon.com/use-gpuuuid",
            nouse_uuid="hygon.com/nouse-gpuuuid",
            mode="",
            numa_bind="",
        ),
        device_class="dra.hygon.com",
        driver="dra.hygon.com",
        capacities=_SHARED_WITHOUT_SLOTS,
        entry_prefix=spelling,
        type_name_prefix="",
        accept_old_type_names=False,
        visible_variable="",
        count_is_exclusive=False,
        default_cores=100,
        # The driver counts compute units, whose number depends on the card: the policy must say it.
        core_units=0,
    )


def _enflame(name: str, count: str, *, slices: bool) -> Family:
    """Describe Enflame's cards, whole or in slices; no DRA driver for them is known."""
    return Family(
        name=name,
        resources=ResourceNames(
            count=count,
            memory="enflame.com/gcu-memory" if slices else "",
            percentage="",
            cores="enflame.com/gcu-core" if slices else "",
            priority="",
        ),
        annotations=AnnotationNames(
            use_type="",
            nouse_type="",
            use_uuid="enflame.com/use-gpuuuid",
            nouse_uuid="enflame.com/nouse-gpuuuid",
            mode="",
            numa_bind="",
        ),
        device_class="",
        driver="",
        capacities=Capacities(slots="", slices="slices" if slices else ""),
        entry_prefix="gcu",
        type_name_prefix="",
        accept_old_type_names=False,
        visible_variable="",
        count_is_exclusive=not slices,
        count_means="slices" if slices else "cards",
        requests_suffice=True,
        default_count=0,
        cores_clamp=False,
    )


PRESETS: Final[dict[str, Family]] = {
    family.name: family
    for family in (
        Family(),
        _ascend("Ascend910A", "910A", 32768, 2184, 4369, 8738, 17476),
        _ascend("Ascend910B2", "910B2", 65536, 8192, 16384, 32768),
        _ascend("Ascend910B3", "910B3", 65536, 16384, 32768),
        _ascend("Ascend910B4-1", "910B4-1", 65536, 16384, 32768),
        _ascend("Ascend910B4", "910B4", 32768, 8192, 16384),
        _ascend("Ascend310P", "310P3", 24576, 3072, 6144, 12288),
        _ascend("Ascend910C", "Ascend910", 65536, 16384, 32768, group=2),
        _hygon("dcu"),
        _hygon("hcu"),
        _enflame("enflame", "enflame.com/gcu", slices=False),
        _enflame("enflame-drs", "enflame.com/drs-gcu", slices=True),
    )
}
"""Every family that is known, by its name."""
