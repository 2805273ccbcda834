"""What each notice means and what a person can do: the README's table, which a test compares."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from hami_dra.migration import Code


class Advice(NamedTuple):
    """A row of the table: what a code means, and what to do about it."""

    meaning: str
    remedy: str


ADVICE: Final[Mapping[Code, Advice]] = {
    Code.CONTROL_DISABLED: Advice(
        "the container sets CUDA_DISABLE_CONTROL, which switches its own limits off",
        "remove the variable",
    ),
    Code.CORES_CLAMPED: Advice(
        "more than 100 percent of a card's compute became 100, as with HAMi",
        "write 100 or less",
    ),
    Code.EXCLUSIVITY_WEAKER: Advice(
        "the driver publishes no slots, so others may join an exclusive card while its "
        "memory lasts",
        "use hami-dra's own driver",
    ),
    Code.HINT_LOST: Advice(
        "an annotation steers HAMi's scheduler in a way that no claim can: order of "
        "cards or nodes, weights, NUMA binding",
        "remove it; pods do not wait because of it",
    ),
    Code.INIT_RESERVED: Advice(
        "an init container needs more than any app container, or sidecar that starts "
        "after it, so its claim is its own and stays reserved while the pod lives; HAMi "
        "reserved the larger of both",
        "ask for the same or more in the app container, and both use one claim",
    ),
    Code.KUBERNETES_ASSUMED: Advice(
        "the cluster's version is not known, so several cards were written in the form "
        "of 1.36 and newer",
        "hami-dra convert --kube-version 1.35",
    ),
    Code.MARK_DROPPED: Advice(
        "an annotation or label that HAMi's scheduler owns was removed; it came from a copied pod",
        "remove it from the manifest",
    ),
    Code.MEMORY_ROUNDED: Advice(
        "the hardware makes shares of some sizes only, and the next one was used, as with HAMi",
        "ask for one of these sizes",
    ),
    Code.NOT_CONVERTED: Advice(
        "the container was left as it is: a static pod, one that HAMi would not have "
        "given a card either, or a vendor without a DeviceClass in the policy",
        "run static pods from a DaemonSet; write nvidia.com/gpu; name the class",
    ),
    Code.PRIVILEGED: Advice(
        "a privileged container sees every card of its node, whatever its share (only "
        "where the policy allows it)",
        "drop privileged",
    ),
    Code.QUOTA_NOT_HELD: Advice(
        "a ResourceQuota of the namespace has a key that no claim can be measured by, "
        "or scopes, which claims do not have",
        "see .github/QUOTAS.md",
    ),
    Code.SCHEDULING_GROUP: Advice(
        "the pod belongs to a scheduling group, and claims of such pods wait unless the"
        " gate DRAWorkloadResourceClaims is on",
        "switch the gate on",
    ),
    Code.STRIPPED_AGAIN: Advice(
        "a resource came back to a converted container, through a LimitRange for "
        "example, and was removed once more",
        "drop the default from the LimitRange",
    ),
}
"""By code; none is left out."""
