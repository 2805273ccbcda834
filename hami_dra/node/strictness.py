"""How strictly the containers of a claim are held to their limits. Pure.

The node decides, and a claim may wish for something by its annotations. What loosens limits is
granted where the node allows it and refused elsewhere, because a pod that runs otherwise than its
author asked is worse than one that does not start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hami_dra.migration import Json
from hami_dra.migration.names import CORE_POLICY, PRIORITY
from hami_dra.node.allocation import PrepareError
from hami_dra.node.limits import CorePolicy

LIBRARY: Final = "hami-dra.io/native-library"
"""Annotation of a claim: `off` leaves the library out of its containers."""

_HIGHEST_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Strictness:
    """What goes into a claim's `control` beside its limits.

    Attributes:
        core_policy: when compute is limited.
        priority: of its tasks, 0 is high; HAMi's default is 1.
        may_disable: whether CUDA_DISABLE_CONTROL in a container switches the library off.
        has_library: whether its containers get the library.
    """

    core_policy: CorePolicy = CorePolicy.DEFAULT
    priority: int = 1
    may_disable: bool = False
    has_library: bool = True


USUAL: Final = Strictness()
"""What held before anybody could choose."""


def of_claim(claim: Json, node: Strictness) -> Strictness:
    """Return what holds for a claim.

    Args:
        claim: the ResourceClaim as the API server has it.
        node: what holds where claims wish for nothing.

    Raises:
        PrepareError: if a wish cannot be read or is not allowed.
    """
    wishes: Mapping[str, str] = claim["metadata"].get("annotations") or {}
    found = node
    if (text := wishes.get(PRIORITY)) is not None:
        found = replace(found, priority=_priority(text))
    if (text := wishes.get(CORE_POLICY)) is not None:
        found = replace(found, core_policy=_core_policy(text))
        if found.core_policy is CorePolicy.DISABLE:
            _refuse_loosening(node, CORE_POLICY, text)
    if (text := wishes.get(LIBRARY)) is not None:
        if text != "off":
            raise PrepareError(f"found {text!r:.80} in {LIBRARY}, expected off")
        _refuse_loosening(node, LIBRARY, text)
        found = replace(found, has_library=False)
    return found


def to_json(strictness: Strictness) -> Json:
    """Write it down."""
    return {
        "corePolicy": strictness.core_policy.name.lower(),
        "priority": strictness.priority,
        "mayDisable": strictness.may_disable,
        "hasLibrary": strictness.has_library,
    }


def from_json(found: Mapping[str, Any]) -> Strictness:
    """Read what was written down.

    Raises:
        KeyError: if something is missing or unknown.
        ValueError: if the priority is no number.
    """
    return Strictness(
        core_policy=CorePolicy[str(found["corePolicy"]).upper()],
        priority=int(found["priority"]),
        may_disable=bool(found["mayDisable"]),
        has_library=bool(found["hasLibrary"]),
    )


def _priority(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text[:11]) > _HIGHEST_NUMBER:
        raise PrepareError(
            f"found {text!r:.80} in {PRIORITY}, expected a number from 0 to {_HIGHEST_NUMBER}"
        )
    return int(text)


def _core_policy(text: str) -> CorePolicy:
    known = {policy.name.lower(): policy for policy in CorePolicy}
    if text not in known:
        raise PrepareError(
            f"found {text!r:.80} in {CORE_POLICY}, expected one of {', '.join(known)}"
        )
    return known[text]


def _refuse_loosening(node: Strictness, name: str, text: str) -> None:
    if not node.may_disable:
        raise PrepareError(
            f"the claim asks for {name}: {text}, and this node's agent runs with --allow-disable"
            " false: remove the annotation"
        )
