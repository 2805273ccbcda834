"""Facts about the control plane: its version, its gates, its limits. Pure."""

import re
from typing import Final

from hami_dra.migration import Json, Policy
from hami_dra.preflight.evidence import Evidence, known
from hami_dra.preflight.fact import Check, Verdict, failed, passed, warned

FLOOR: Final = (1, 36, 2)
"""The oldest version that does everything with its defaults."""

_OLDEST: Final = (1, 34)
_ONE_CARD_A_NODE: Final = (1, 34)
_NUMBERS: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")
_GATE: Final = "--feature-gates=DRAConsumableCapacity=true"
_EMPTY_REQUEST: Final = "exactly one of"
_REFUSED: Final = "do what the message says, or name another namespace: --namespace NAME"
# With the stock limits 11 pods a second were measured, with raised ones 53 on two cores.
_ENOUGH_PER_SECOND: Final = 25.0


def kubernetes_version(evidence: Evidence, _policy: Policy) -> Verdict:
    """Compare with the floor; older ones have their caveats."""
    text = str(known(evidence.server).get("gitVersion"))
    floor = f"{'.'.join(map(str, FLOOR))} or newer"
    parsed = _NUMBERS.match(text)
    if parsed is None:
        return warned(f"{text}, which is no version", expected=floor, fix="ask who built it")
    major, minor, patch = map(int, parsed.groups())
    if (major, minor) < _OLDEST:
        return failed(
            f"{text}, without resource.k8s.io/v1", expected=floor, fix="upgrade the control plane"
        )
    if (major, minor, patch) >= FLOOR:
        return passed(text)
    if (major, minor) == _ONE_CARD_A_NODE:
        return warned(
            f"{text}, which shares cards only on nodes with a single one",
            expected=floor,
            fix="upgrade the control plane; until then keep GPU nodes to one card and see"
            " .github/VERSIONS.md",
        )
    return warned(
        text,
        expected=floor,
        fix="upgrade the control plane; until then pods with several cards need claims in the"
        " form of this version (hami-dra convert --kube-version), which the webhook writes",
    )


def dra_api(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have the API group."""
    found = known(evidence.api)
    missing = {"resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"}
    missing -= {each["name"] for each in (found or {}).get("resources") or ()}
    if found is not None and not missing:
        return passed("resource.k8s.io/v1 is served")
    return failed(
        "resource.k8s.io/v1 is not served"
        if found is None
        else f"resource.k8s.io/v1 lacks {', '.join(sorted(missing))}",
        expected="the API group of Dynamic Resource Allocation",
        fix="use Kubernetes 1.34 or newer, and do not switch the API off with --runtime-config",
    )


def consumable_capacity(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have the API server keep the field that makes a claim a share; without the gate it drops it.

    Scheduler and kubelets have gates of their own, which no API tells.
    """
    probe = known(evidence.capacity)
    expected = "the feature gate DRAConsumableCapacity, which is on since 1.36"
    if probe.stored is None:
        # A gate that is off makes the API server drop the field; it refuses nothing for that.
        return failed(
            f"a claim with a capacity request was refused: {probe.refusal}",
            expected=expected,
            fix=_REFUSED,
        )
    if (_first_request(probe.stored).get("exactly") or {}).get("capacity"):
        return passed("the API server keeps capacity requests of claims")
    return failed(
        "the API server drops capacity requests, so every claim would take whole cards",
        expected=expected,
        fix=f"start kube-apiserver, kube-scheduler and every kubelet with {_GATE}",
    )


def prioritized_list(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have the form of a claim that says percentages of cards of several sizes."""
    probe = known(evidence.alternatives)
    if probe.stored is not None and _first_request(probe.stored).get("firstAvailable"):
        return passed("the API server keeps alternatives of a request")
    # Without its alternatives the request is empty, and that is what it is refused for.
    is_dropped = probe.stored is not None or _EMPTY_REQUEST in probe.refusal
    return warned(
        probe.refusal or "the API server drops alternatives of a request",
        expected="the feature gate DRAPrioritizedList, for percentages where cards differ in size",
        fix="start kube-apiserver and kube-scheduler with --feature-gates=DRAPrioritizedList=true"
        if is_dropped
        else _REFUSED,
    )


def controller_manager_rate(evidence: Evidence, _policy: Policy) -> Verdict:
    """Have claims appear as fast as pods do; the stock limits of the client allow 11 a second."""
    rate = known(evidence.rate)
    per_second = rate.pods / rate.seconds
    found = (
        f"{per_second:.0f} pods a second got their claims, in a burst of {rate.pods} whose"
        f" creation alone took {rate.created_s:.1f} s"
    )
    if per_second >= _ENOUGH_PER_SECOND:
        return passed(found)
    return warned(
        found,
        expected=f"{_ENOUGH_PER_SECOND:.0f} or more",
        fix="start kube-controller-manager with --kube-api-qps=200 --kube-api-burst=400, and set"
        " clientConnection.qps and burst alike in kube-scheduler's configuration; where they are"
        " set, measure again on an idle cluster",
    )


def _first_request(stored: Json) -> Json:
    [request, *_] = stored["spec"]["spec"]["devices"]["requests"]
    first: Json = request
    return first


CHECKS: Final = (
    Check("kubernetes-version", "Kubernetes is new enough", kubernetes_version),
    Check("dra-api", "Dynamic Resource Allocation is served", dra_api),
    Check("consumable-capacity", "claims can ask for shares of cards", consumable_capacity),
    Check("prioritized-list", "claims can name alternatives", prioritized_list),
    Check("controller-manager-rate", "claims are generated fast enough", controller_manager_rate),
)
