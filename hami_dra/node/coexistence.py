"""Find out whether somebody else gives this node's cards away (ruling 31). Pure.

A card that a device plugin and a DRA driver offer at one time is given away twice.
"""

from typing import Final

from hami_dra.migration import Json
from hami_dra.migration.quantity import QuantityError, parse

_WHOLE: Final = "nvidia.com/gpu"
_PARTITION: Final = "nvidia.com/mig-"
_HAMI: Final = "hami.io/node-nvidia-register"


def device_plugin(node: Json) -> str | None:
    """Return what is wrong, in a sentence, if a device plugin serves the node's cards.

    Args:
        node: the Node as the API server has it. Its annotations alone prove nothing, since they
            stay when a plugin is removed; its allocatable amounts go to zero.
    """
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    served = sorted(
        f"{name}: {amount}"
        for name, amount in allocatable.items()
        if (name == _WHOLE or name.startswith(_PARTITION)) and _is_positive(amount)
    )
    if not served:
        return None
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    owner = "HAMi's" if _HAMI in annotations else "NVIDIA's"
    return (
        f"{owner} device plugin serves this node's cards (allocatable {', '.join(served)}), and"
        " cards must not be given away twice: remove the plugin from this node, for example by the"
        " node selector of its DaemonSet; publishing begins by itself once allocatable is 0"
    )


def _is_positive(amount: object) -> bool:
    try:
        return parse(amount).nanos > 0
    except QuantityError:
        return False
