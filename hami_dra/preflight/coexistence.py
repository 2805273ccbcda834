"""Facts about HAMi beside us: two systems must never give the same card away (ruling 31). Pure."""

from typing import Final

from hami_dra.migration import Json, Policy
from hami_dra.migration.quantity import QuantityError, parse
from hami_dra.migration.registration import NAME
from hami_dra.preflight.evidence import Evidence, known
from hami_dra.preflight.fact import Check, Verdict, failed, names, passed, warned

NODE_ANNOTATIONS: Final = "hami.io/node-"
"""Prefix of what HAMi's device plugins write on their nodes."""

_HAMI_WEBHOOK: Final = "vgpu.hami.io"


def device_plugin(evidence: Evidence, policy: Policy) -> Verdict:
    """Have no node whose cards a device plugin gives away too."""
    converted = set(policy.converted_names)
    plugged = {
        node.name: names(
            n for n in converted & node.allocatable.keys() if _some(node.allocatable[n])
        )
        for node in known(evidence.nodes)
    }
    plugged = {name: resources for name, resources in plugged.items() if resources}
    if not plugged:
        return passed("no node offers a resource that is converted")
    both = plugged.keys() & _our_nodes(evidence, policy)
    shown = sorted(both or plugged)
    resources = names(plugged[name] for name in shown)
    fix = f"kubectl label node {' '.join(shown[:5])} gpu-   # HAMi's plugin runs where gpu=on"
    if both:
        return failed(
            f"{names(both)} offer {resources} beside ResourceSlices of the same cards",
            expected="either the device plugin or the node agent on a node",
            fix=fix,
        )
    return warned(
        f"{names(plugged)} offer {resources}; converted pods never run there",
        expected="the node agent in place of the device plugin",
        fix=fix,
    )


def hami_node_annotations(evidence: Evidence, policy: Policy) -> Verdict:
    """Have no node that HAMi's scheduler still takes for its own."""
    marked = {node.name: node.annotations for node in known(evidence.nodes) if node.annotations}
    both = sorted(marked.keys() & _our_nodes(evidence, policy))
    if not both:
        return passed("no node with our slices carries HAMi's registration")
    keys = sorted({key for name in both for key in marked[name]})
    return failed(
        f"{names(both)} carry {names(keys)}: HAMi's plugin runs there, or its scheduler still"
        " gives their cards away",
        expected="no registration of HAMi on nodes with our slices",
        fix=f"kubectl annotate node {' '.join(both[:5])} {' '.join(f'{key}-' for key in keys)}",
    )


def hami_webhook(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have one webhook that deals with GPU pods."""
    found = {
        each["metadata"]["name"]
        for each in known(evidence.mutating)
        if each["metadata"]["name"] != NAME
        and any(hook["name"] == _HAMI_WEBHOOK for hook in each.get("webhooks") or ())
    }
    if not found:
        return passed("HAMi's webhook is not registered")
    return warned(
        f"HAMi's webhook is registered too: {names(found)}",
        expected="hami-dra's alone; HAMi's sends opted-out pods to its own scheduler",
        fix=f"kubectl delete mutatingwebhookconfiguration {' '.join(sorted(found))}",
    )


def hami_scheduler(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have no scheduler that gives cards away by its own books."""
    there = known(evidence.schedulers)
    found = [each["metadata"] for each in there if _replicas(each)]
    titles = names(f"{each['namespace']}/{each['name']}" for each in found)
    if not found:
        return passed(f"HAMi's scheduler is {'scaled to zero' if there else 'not installed'}")
    [first, *_] = found
    return warned(
        f"HAMi's scheduler runs: {titles}",
        expected="no HAMi scheduler once all GPU nodes are migrated",
        fix=f"kubectl -n {first['namespace']} scale deployment {first['name']} --replicas=0",
    )


def _replicas(deployment: Json) -> int:
    wanted: int = (deployment.get("spec") or {}).get("replicas", 1)
    return wanted


def _our_nodes(evidence: Evidence, policy: Policy) -> set[str]:
    drivers = {family.driver for family in policy.families if family.device_class}
    return {each.node for each in known(evidence.pools) if each.driver in drivers and each.devices}


def _some(amount: object) -> bool:
    try:
        return parse(amount).nanos > 0
    except QuantityError:
        return False


CHECKS: Final = (
    Check("device-plugin", "no device plugin gives the same cards away", device_plugin),
    Check("hami-node-annotations", "HAMi does not claim our nodes", hami_node_annotations),
    Check("hami-webhook", "HAMi's webhook is gone", hami_webhook),
    Check("hami-scheduler", "HAMi's scheduler is gone", hami_scheduler),
)
