"""Facts about device classes and the cards that drivers publish. Pure."""

from collections.abc import Iterable
from typing import Final

from hami_dra.migration import Family, Policy
from hami_dra.migration.claim import MOST_SIZES
from hami_dra.migration.inventory import cards_of
from hami_dra.preflight.evidence import Evidence, Pool, known
from hami_dra.preflight.fact import Check, Verdict, failed, names, passed, warned

_INSTALL: Final = "hami-dra install"


def device_class(evidence: Evidence, policy: Policy) -> Verdict:
    """Have a class for each family, which selects that family's driver."""
    classes = {each["metadata"]["name"]: each for each in known(evidence.classes)}
    wanted = {family.device_class: family.driver for family in _converted(policy)}
    expected = f"DeviceClass {names(wanted)}, for the driver {names(wanted.values())}"
    if absent := wanted.keys() - classes.keys():
        return failed(f"no DeviceClass {names(absent)}", expected=expected, fix=_INSTALL)
    for name, driver in wanted.items():
        selectors = classes[name]["spec"].get("selectors") or ()
        if not any(driver in (each.get("cel") or {}).get("expression", "") for each in selectors):
            return failed(
                f"DeviceClass {name} has no selector that names {driver}",
                expected=expected,
                fix=f"kubectl delete deviceclass {name} && {_INSTALL}",
            )
    of_partitions = {family.mig_device_class for family in _converted(policy)} - {""}
    if absent := of_partitions - classes.keys():
        return failed(
            f"no DeviceClass {names(absent)}, for pods that accept MIG cards only",
            expected="every class that the policy names as migDeviceClass",
            fix="create it, with a selector for these cards, or empty migDeviceClass in the policy",
        )
    return passed(names({*wanted, *of_partitions}) or "no family of the policy has a DeviceClass")


def extended_resource_name(evidence: Evidence, policy: Policy) -> Verdict:
    """Have no class that gives whole cards to pods that nobody converted (ruling 29)."""
    ours = {family.device_class for family in _converted(policy)}
    managed = set(policy.converted_names)
    found = {
        each["metadata"]["name"]: each["spec"]["extendedResourceName"]
        for each in known(evidence.classes)
        if each["spec"].get("extendedResourceName")
        and (each["metadata"]["name"] in ours or each["spec"]["extendedResourceName"] in managed)
    }
    if not found:
        return passed("no DeviceClass stands for a resource that is converted")
    name, resource = min(found.items())
    return warned(
        f"DeviceClass {name} stands for {resource}: a pod that nobody converted gets whole cards",
        expected="no extendedResourceName, unless you want that on purpose",
        fix=f"kubectl patch deviceclass {name} --type=merge"
        """ -p '{"spec":{"extendedResourceName":null}}'""",
    )


def resource_slices(evidence: Evidence, policy: Policy) -> Verdict:
    """Have cards of the drivers that the classes select."""
    pools = _current(known(evidence.pools))
    ours = _ours(pools, policy)
    others = names({each.driver for each in pools} - {each.driver for each in ours})
    drivers = names(family.driver for family in _converted(policy))
    if not sum(each.devices for each in ours):
        return failed(
            f"no card of the driver {drivers}" + (f", only of {others}" if others else ""),
            expected=f"ResourceSlices of {drivers}",
            fix="run the node agent on the GPU nodes (hami-dra install); its log says why it"
            " publishes nothing",
        )
    nodes = len({each.node for each in ours})
    return passed(
        f"{sum(each.devices for each in ours)} cards on {nodes} nodes"
        + (f"; also slices of {others}" if others else "")
    )


def driver_profile(evidence: Evidence, policy: Policy) -> Verdict:
    """Have drivers publish what the policy's claims ask for, and no more."""
    pools = _current(known(evidence.pools))
    profiles = set[str]()
    for family in _converted(policy):
        for pool in _ours(pools, policy):
            if pool.driver != family.driver or not pool.devices:
                continue
            if verdict := _mismatch(pool, family):
                return verdict
            profiles.add(_profile(pool, family))
    return passed(f"profile {names(profiles)}" if profiles else "no cards, so no profile")


def card_sizes(evidence: Evidence, policy: Policy) -> Verdict:
    """Have as many sizes of cards as a claim can list, for percentages of memory (ruling 7).

    A percentage is one of the cards of its own vendor, so each driver counts by itself.
    """
    pools = known(evidence.pools)
    drivers = dict.fromkeys(f.driver for f in _converted(policy) if f.resources.percentage)
    found = [
        sorted(cards_of([each.sizes for each in pools if each.driver == driver]).memory_mib)
        for driver in drivers
    ]
    if not found:
        return passed("no family of the policy has percentages")
    if wrong := [sizes for sizes in found if not 1 <= len(sizes) <= MOST_SIZES]:
        [sizes, *_] = wrong
        return warned(
            _listed(sizes) if sizes else "no size of a shareable card",
            expected=f"1 to {MOST_SIZES} sizes; otherwise pods that ask for a percentage are"
            " refused",
            fix="ask for MiB instead of percent"
            if sizes
            else "run the node agent on the GPU nodes (hami-dra install)",
        )
    return passed("; ".join(map(_listed, found)))


def _listed(sizes: list[int]) -> str:
    count = "1 size" if len(sizes) == 1 else f"{len(sizes)} sizes"
    return f"{count}: {', '.join(f'{size} MiB' for size in sizes[:10])}"


def _mismatch(pool: Pool, family: Family) -> Verdict | None:
    """Say where a slice and the policy do not fit."""
    where = f"the cards of {pool.node or pool.sizes.pool}"
    if not pool.shareable:
        return failed(
            f"{where} cannot be shared: they lack allowMultipleAllocations",
            expected="cards with allowMultipleAllocations and request policies",
            fix="switch DRAConsumableCapacity on in kube-apiserver and restart the node agent; it"
            " publishes them anew",
        )
    asked = {name for name in family.capacities.model_dump().values() if name}
    if missing := asked - pool.capacities:
        return failed(
            f"{where} publish no {names(missing)}, which every claim asks for, so none is met",
            expected=f"the capacities {names(asked)}",
            fix="use hami-dra's own node agent, or tell the policy what the driver publishes:"
            f" families: [{{preset: {family.name}, capacities: {{slots: ''}}}}]",
        )
    slots = Family().capacities.slots
    if not family.capacities.slots and slots in pool.capacities:
        return warned(
            f"{where} publish {slots}, and the policy does not use it",
            expected="a policy that does: without it others may join an exclusive card",
            fix=f"remove the empty capacities.slots of {family.name} from the policy",
        )
    return None


def _profile(pool: Pool, family: Family) -> str:
    """Name what a driver publishes (DESIGN: profile)."""
    if family.capacities.slots and family.capacities.slots in pool.capacities:
        return "hami-dra"
    return "hami"


def _converted(policy: Policy) -> list[Family]:
    return [family for family in policy.families if family.device_class]


def _ours(pools: Iterable[Pool], policy: Policy) -> list[Pool]:
    drivers = {family.driver for family in _converted(policy)}
    return [each for each in pools if each.driver in drivers]


def _current(pools: list[Pool]) -> list[Pool]:
    """Leave out slices of generations that are over."""
    newest: dict[tuple[str, str], int] = {}
    for each in pools:
        key = (each.driver, each.sizes.pool)
        newest[key] = max(each.sizes.generation, newest.get(key, 0))
    return [e for e in pools if e.sizes.generation == newest[e.driver, e.sizes.pool]]


CHECKS: Final = (
    Check("device-class", "the DeviceClass selects our driver", device_class),
    Check("extended-resource-name", "no DeviceClass goes past the webhook", extended_resource_name),
    Check("resource-slices", "the driver publishes cards", resource_slices),
    Check("driver-profile", "the driver publishes what claims ask for", driver_profile),
    Check("card-sizes", "percentages can be resolved", card_sizes),
)
