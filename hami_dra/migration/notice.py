"""What a migration tells a person: notices it gives and rejections it raises.

Codes are stable: users filter on them, and the README lists each with its meaning.
"""

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """The stable code of a notice."""

    CONTROL_DISABLED = "ControlDisabled"
    """The container's environment switches its own limits off (V60)."""
    CORES_CLAMPED = "CoresClamped"
    """More than 100 percent of a card's compute became 100 (ruling 5)."""
    EXCLUSIVITY_WEAKER = "ExclusivityWeaker"
    """The driver cannot keep others off a card as legacy did (ruling 4)."""
    HINT_LOST = "HintLost"
    """An annotation steers HAMi's scheduler in a way that no claim can (ruling 14)."""
    INIT_RESERVED = "InitReserved"
    """An init container has a claim of its own, reserved while the pod lives (ruling 15)."""
    KUBERNETES_ASSUMED = "KubernetesAssumed"
    """The cluster's version is not known; the newest form of a claim was written (ruling 10)."""
    MARK_DROPPED = "MarkDropped"
    """An annotation or label that HAMi's scheduler owns was removed (ruling 21)."""
    MEMORY_ROUNDED = "MemoryRounded"
    """The hardware makes shares of some sizes only; the next one was used (ruling 23)."""
    NOT_CONVERTED = "NotConverted"
    """The container was left as it is, since legacy would not have given it a card (ruling 8)."""
    PRIVILEGED = "Privileged"
    """A privileged container sees every card of its node, whatever its share (ruling 16)."""
    QUOTA_NOT_HELD = "QuotaNotHeld"
    """A ResourceQuota of the namespace says something that claims cannot be held to (ruling 30)."""
    SCHEDULING_GROUP = "SchedulingGroup"
    """The pod belongs to a scheduling group, whose claims need a feature gate."""
    STRIPPED_AGAIN = "StrippedAgain"
    """A resource came back to a converted container and was removed once more (ruling 20)."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the migration guessed, lost or wants a person to know.

    Attributes:
        code: stable, for filters and documentation.
        path: the field it speaks of, such as `spec.containers[0].resources.limits`.
        message: one sentence.
    """

    code: Code
    path: str
    message: str

    def __str__(self) -> str:
        """Render as one line for a terminal or an admission warning."""
        return f"{self.code}: {self.path}: {self.message}"


class RejectedPod(Exception):  # noqa: N818 - a verdict on the pod, not an error of ours
    """The pod asks for something that legacy HAMi or Kubernetes would refuse.

    Attributes:
        path: the field that is wrong.
        reason: what was found and what was expected.
        hint: what the author can do about it; may be empty.
    """

    def __init__(self, path: str, reason: str, hint: str = "") -> None:
        super().__init__(path, reason, hint)
        self.path = path
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        """Render as the message that `kubectl` shows."""
        text = f"{self.path}: {self.reason}"
        return f"{text}; {self.hint}" if self.hint else text
